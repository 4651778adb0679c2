// An HTTP server and a client with many goroutines, of net/http only.
//
//	go-http serve ADDRESS
//	go-http fetch URL WORKERS REQUESTS
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// serve answers each request after 20 ms, as if it had asked a database.
func serve(address string) error {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		fmt.Fprintf(w, "hello from %s\n", runtime.Version())
	})
	fmt.Println("listening on", address)
	return http.ListenAndServe(address, nil)
}

// fetch gets url `requests` times in each of `workers` goroutines, over connections that are kept.
func fetch(url string, workers, requests int) error {
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	var group sync.WaitGroup
	failures := make(chan error, workers)
	start := time.Now()
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for request := 0; request < requests; request++ {
				answer, err := client.Get(url)
				if err != nil {
					failures <- err
					return
				}
				io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		}()
	}
	group.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	fmt.Printf("%d requests in %d ms\n", workers*requests, time.Since(start).Milliseconds())
	return nil
}

func run(arguments []string) error {
	if len(arguments) == 2 && arguments[0] == "serve" {
		return serve(arguments[1])
	}
	if len(arguments) == 4 && arguments[0] == "fetch" {
		workers, err := strconv.Atoi(arguments[2])
		if err != nil {
			return err
		}
		requests, err := strconv.Atoi(arguments[3])
		if err != nil {
			return err
		}
		return fetch(arguments[1], workers, requests)
	}
	return fmt.Errorf("usage: go-http serve ADDRESS | fetch URL WORKERS REQUESTS")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "go-http:", err)
		os.Exit(1)
	}
}
