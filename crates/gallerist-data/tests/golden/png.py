"""Makes palette.png and one_bit.png: PNG kinds that the `image` crate cannot write."""

import struct
import zlib


def png(path, width, height, depth, colour, chunks, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    data = b"".join(b"\0" + row for row in rows)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)))
        for kind, body in chunks:
            file.write(chunk(kind, body))
        file.write(chunk(b"IDAT", zlib.compress(data)))
        file.write(chunk(b"IEND", b""))


palette = [(b"PLTE", bytes([255, 0, 0, 0, 255, 0])), (b"tRNS", bytes([255, 51]))]
png("palette.png", 2, 1, 8, 3, palette, [bytes([0, 1])])
png("one_bit.png", 9, 2, 1, 0, [], [bytes([0b10101010, 0b10000000]), bytes([0, 0b10000000])])
