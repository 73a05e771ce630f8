"""What the programs that drive a server share."""

import socket

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
