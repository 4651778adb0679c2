# traffic.py receive PORT: takes one connection, and prints each half second (time in seconds, bytes that came)
# traffic.py send ADDRESS PORT CONGESTION-CONTROL UNTIL-SECONDS
import socket
import sys
import time

INTERVAL_S = 0.5


def now_s():
    # Clocks that count from the boot are at 1 s when a run begins.
    return time.monotonic() - 1


def receive(port):
    with socket.create_server(("", int(port))) as server, server.accept()[0] as peer:
        end_s, received = INTERVAL_S, 0
        while data := peer.recv(65536):
            at_s = now_s()
            while at_s >= end_s:
                print(end_s, received, flush=True)
                end_s, received = end_s + INTERVAL_S, 0
            received += len(data)
        print(end_s, received)


def send(address, port, congestion, until_s):
    with socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        sender.connect((address, int(port)))
        while now_s() < float(until_s):
            sender.send(b"w" * 16384)


{"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:])
