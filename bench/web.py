# SPDX-License-Identifier: GPL-2.0-or-later
"""nginx and curl, as the distribution ships them: the same configuration and requests in two nodes and on the host."""

import os
import socket
from pathlib import Path

from scenarios import Mapping, scenario
from simulate import run_command

PAGE_BYTES = 10_000
CONFIG = """
worker_processes 1;
daemon off;
{user}
pid {root}/nginx.pid;
error_log {root}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  keepalive_requests 1000000;
  client_body_temp_path {root}/body;
  proxy_temp_path {root}/proxy;
  fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi;
  scgi_temp_path {root}/scgi;
  server {{
    listen {address};
    root {root};
  }}
}}
"""


def config(root: str, address: str, user: str) -> str:
    return CONFIG.format(root=root, address=address, user=f"user {user};" if user else "")


def request(address: str, count: int, keep_alive: bool) -> list[str]:
    """One curl that fetches the page `count` times, over one connection or over one for each."""
    header = [] if keep_alive else ["-H", "Connection: close"]
    return ["curl", "-sSf", "-o", "/dev/null", *header, f"http://{address}/page?[1-{count}]"]


def web_nodes(count: int, keep_alive: bool) -> Mapping:
    """The client fetches the page from the server over a link of 1 Gb/s and 1 ms."""
    server = {
        "addresses": {"eth0": "10.0.0.2/24"},
        "files": {
            "/etc/nginx/nginx.conf": {"content": config("/srv", "80", "root")},
            "/srv/page": {"content": "x" * PAGE_BYTES},
        },
        "processes": [{"exec": "nginx", "expect": "running"}],
    }
    client = {
        "addresses": {"eth0": "10.0.0.1/24"},
        "processes": [{"exec": request("10.0.0.2", count, keep_alive), "start": "1s"}],
    }
    link = {"endpoints": ["client:eth0", "server:eth0"], "both": {"rate": "1Gbit", "delay": "1ms"}}
    return scenario({"client": client, "server": server}, [link], stop=f"{count // 50 + 5}s")


def host_cpu_s(folder: Path, count: int, keep_alive: bool) -> float:
    """CPU of nginx and curl on the host, over its loopback."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    root = folder / "web"
    root.mkdir(exist_ok=True)
    (root / "page").write_text("x" * PAGE_BYTES, encoding="ascii")
    user = "root" if os.geteuid() == 0 else ""
    (root / "nginx.conf").write_text(config(str(root), address, user), encoding="ascii")
    script = """
        nginx -c "$0/nginx.conf" -p "$0" & server=$!
        trap 'kill -QUIT $server' EXIT
        for i in {1..100}; do
            [ -s "$0/nginx.pid" ] && break
            sleep 0.05
        done
        "$@" || exit
        trap - EXIT
        kill -QUIT $server
        wait $server
    """
    return run_command(["bash", "-c", script, root, *request(address, count, keep_alive)]).cpu_s
