"""Pictures made with the standard library alone: good ones, and those of an attacker."""

import random
import struct
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_rows(width, height, rows, colour=2):
    """A PNG of rows without filters, of three bytes (`colour` 2) or one byte (0) a pixel."""
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 6)
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png(kind, number, side=64):
    """A picture of a class: coloured stripes of its width and colour, with some noise."""
    own = random.Random(1000 * kind + number)
    colour = random.Random(kind).choices(range(60, 250), k=3)
    width, shift = 2 + kind % 7, own.randrange(8)
    rows = []
    for y in range(side):
        row = bytearray()
        for x in range(side):
            lit = ((x if kind % 2 else y) + shift) // width % 2
            row += bytes(max(0, min(255, (c if lit else c // 4) + own.randrange(-20, 20))) for c in colour)
        rows.append(bytes(row))
    return png_of_rows(side, side, rows)


def segment(marker, data):
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def table(kind, symbols):
    """A Huffman table of at most 255 symbols, all with codes of eight bits: 0, 1, 2, ..."""
    counts = [0] * 16
    counts[7] = len(symbols)
    return segment(0xC4, bytes([kind, *counts, *symbols]))


def jpeg_start(width, height, frame):
    tables = segment(0xDB, bytes([0] + [1] * 64)) + table(0x00, [0]) + table(0x10, [0x00, 0xE0])
    return b"\xff\xd8" + tables + segment(frame, struct.pack(">BHHB", 8, height, width, 1) + bytes([1, 0x11, 0]))


def jpeg(width, height):
    """A grey JPEG."""
    blocks = -(-width // 8) * -(-height // 8)
    scan = segment(0xDA, bytes([1, 1, 0x00, 0, 63, 0]))
    return jpeg_start(width, height, 0xC0) + scan + bytes(2 * blocks) + b"\xff\xd9"


def progressive(width, height, scans):
    """A JPEG with many scans of a few bytes each, all of which visit every block."""
    blocks = -(-width // 8) * -(-height // 8)
    data = jpeg_start(width, height, 0xC2)
    data += segment(0xDA, bytes([1, 1, 0x00, 0, 0, 0x0F])) + bytes(blocks)
    # An end of block for as many as one code can name: eight bits for the code, fourteen for the number.
    bits, left = "", blocks
    while left >= 1 << 14:
        run = min(left, (1 << 15) - 1)
        bits += f"{1:08b}{run - (1 << 14):014b}"
        left -= run
    bits += "0" * 8 * left
    bits += "1" * (-len(bits) % 8)
    codes = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
    for scan in range(scans):
        data += segment(0xDA, bytes([1, 1, 0x00, 1 + scan % 63, 1 + scan % 63, 0x0F])) + codes
    return data + b"\xff\xd9"


def bomb(side):
    """A PNG of zeros: a thousand pixels for each byte."""
    return png_of_rows(side, side, [bytes(side)] * side, 0)


def claims(side):
    """A PNG whose header names a size that its few bytes cannot hold."""
    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def hostile():
    """Names, bytes and permitted statuses of hostile files."""
    good, photo = png(1, 1, 96), jpeg(640, 427)
    noise = random.Random(5).randbytes(4096)
    text = b"<!doctype html><script>alert(1)</script>" * 20
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0x55
    return [
        ("png cut", good[: len(good) * 2 // 3], {422}),
        ("png flipped", bytes(flipped), {422}),
        ("png header only", good[:33], {422}),
        ("png claims 16384", claims(16384), {422}),
        ("png claims 60000", claims(60000), {422}),
        ("png bomb, permitted", bomb(4000), {200, 422}),
        ("jpeg cut", photo[:600], {422}),
        ("jpeg claims 65500", jpeg(64, 64).replace(struct.pack(">HH", 64, 64), struct.pack(">HH", 65500, 65500)), {422}),
        ("jpeg of many scans", progressive(2048, 2048, 400), {422}),
        ("jpeg then noise", photo[:500] + noise, {422}),
        ("gif cut", b"GIF89a" + struct.pack("<HHBBB", 9000, 9000, 0x80, 0, 0) + bytes(6) + b",", {422}),
        ("bmp claims", b"BM" + struct.pack("<IHHIIiiHHIIiiII", 200, 0, 0, 54, 40, 15000, 15000, 1, 24, 0, 0, 0, 0, 0, 0), {422}),
        ("webp cut", b"RIFF\xff\0\0\0WEBPVP8 " + noise[:64], {415, 422}),
        ("tiff cut", b"II*\0\x08\0\0\0" + b"\xff" * 40, {415, 422}),
        ("html", text, {415}),
        ("svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", {415}),
        ("noise", noise, {415}),
        ("empty", b"", {415, 422}),
    ]
