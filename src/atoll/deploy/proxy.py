"""The proxy in front of Flower's SuperLink: nginx, which forwards what nodes need and nothing else.

The SuperLink serves nodes, operators and running programs on one port, and does not authenticate operators: anyone who
reaches that port can run code on every node. So the SuperLink listens on the loopback interface only, and the proxy
forwards the paths of nodes alone.
"""

from __future__ import annotations

import getpass
import os
import shutil
from pathlib import Path

from atoll.errors import SiteError

FLEET = "/v1/fleet/"
LARGEST_BODY = "256m"  # Flower cuts large arrays into pieces of 5 MB; what remains whole is a message without them

REFUSED = "logs/refused.log"  # in the federation's directory

CONFIGURATION = """\
# Made by `atoll federation init`. Nodes reach {fleet} and nothing else: the other paths have no authentication.
# Paths are relative to the federation's directory: nginx -p DIR -c server/nginx.conf
worker_processes 1;
pid state/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    # Who was refused, with the time by its own clock: the server's program reads it.
    map $status $refused {{ ~^4 $http_flwr_timestamp; default ""; }}
    log_format refused '$msec $http_flwr_timestamp $http_flwr_public_key';
    access_log {refused} refused if=$refused;
    server_tokens off;
    client_body_temp_path state/proxy/body;
    proxy_temp_path state/proxy/proxy;
    fastcgi_temp_path state/proxy/fastcgi;
    uwsgi_temp_path state/proxy/uwsgi;
    scgi_temp_path state/proxy/scgi;
    server {{
        listen {port} ssl;{listen6}
        ssl_certificate server.crt;
        ssl_certificate_key server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size {largest};
        client_header_timeout 30s;
        client_body_timeout 60s;
        location {fleet} {{
            limit_except POST {{ deny all; }}
            proxy_pass https://127.0.0.1:{superlink_port};
            proxy_ssl_trusted_certificate ca.crt;
            proxy_ssl_name localhost;
            proxy_ssl_verify on;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering off;
            proxy_read_timeout 300s;
            proxy_send_timeout 300s;
        }}
        location = {bare} {{ return 403; }}
        location / {{ return 403; }}
    }}
}}
"""


def configuration(port: int, superlink_port: int, everywhere: bool = True) -> str:
    """The text of nginx.conf. Not `everywhere`: on this machine's loopback only."""
    return CONFIGURATION.format(
        fleet=FLEET,
        bare=FLEET.rstrip("/"),
        largest=LARGEST_BODY,
        refused=REFUSED,
        port=port if everywhere else f"127.0.0.1:{port}",
        listen6=f"\n        listen [::]:{port} ssl;" if everywhere and Path("/proc/net/if_inet6").exists() else "",
        superlink_port=superlink_port,
    )


def find_nginx() -> str:
    """The program nginx; on Debian it is in a folder that is not on everybody's path."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SiteError(
            "nginx is not installed; install it (Debian, Ubuntu: apt-get install nginx-light)", code="nginx-missing"
        )
    return found


def command(folder: Path) -> list[str]:
    """nginx in the foreground, for the federation in this directory."""
    settings = "daemon off;"
    if os.geteuid() == 0:
        # Started by root, nginx would work as `nobody`, who cannot reach files in a private folder.
        settings += f" user {getpass.getuser()};"
    return [find_nginx(), "-p", f"{folder}/", "-c", "server/nginx.conf", "-e", "stderr", "-g", settings]
