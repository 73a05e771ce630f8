"""What the programs that drive a server share."""

import contextlib
import socket
import subprocess

FORM = {"Content-Type": "multipart/form-data; boundary=limit"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def form(image=None, **fields):
    """The body of a form; an image, then texts."""
    body = b""
    if image is not None:
        body += b'--limit\r\nContent-Disposition: form-data; name="image"; filename="q"\r\n\r\n' + image + b"\r\n"
    for name, text in fields.items():
        body += f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
    return body + b"--limit--\r\n"


@contextlib.contextmanager
def serving(program, gallery, *more):
    """The port of a server of the gallery, without analysis, until the end of the block."""
    command = [program, "serve", "--gallery", gallery, "--port", "0", "--analysis-limit", "0", *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    server = subprocess.Popen([*map(str, command)], **pipes)
    try:
        yield int(server.stdout.readline().rsplit(":", 1)[1])
    finally:
        server.terminate()
        server.wait()


def milliseconds(times, share):
    """A percentile of times in seconds."""
    return 1000 * sorted(times)[min(len(times) - 1, int(share * len(times)))]
