module windtunnel/examples/go-http

go 1.19
