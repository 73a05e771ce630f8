"""Golden values of `Random`: SHA-256 from hashlib, ChaCha8 written from RFC 8439.

Run with any Python 3; the output is pasted into tests/random.rs.
"""

import hashlib
import struct


def chacha8_words(key, blocks):
    state0 = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key))
    for block in range(blocks):
        state = state0 + [block, 0, 0, 0]
        x = state[:]

        def quarter(a, b, c, d):
            for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[p] = (x[p] + x[q]) & 0xFFFFFFFF
                v = x[r] ^ x[p]
                x[r] = ((v << n) | (v >> (32 - n))) & 0xFFFFFFFF

        for _ in range(4):
            for a in range(4):
                quarter(a, a + 4, a + 8, a + 12)
            for a in range(4):
                quarter(a, 4 + (a + 1) % 4, 8 + (a + 2) % 4, 12 + (a + 3) % 4)
        yield from ((a + b) & 0xFFFFFFFF for a, b in zip(x, state))


def words64(seed, purpose, epoch, index, count):
    text = b"gallerist random 1\0" + struct.pack("<QQQ", seed, epoch, index) + purpose.encode()
    words = chacha8_words(hashlib.sha256(text).digest(), (count + 7) // 8)
    for _ in range(count):
        low = next(words)
        yield low | next(words) << 32


def below(words, n):
    threshold = (2**64 - n) % n
    while True:
        product = next(words) * n
        if product % 2**64 >= threshold:
            return product >> 64


def permutation(words, n):
    items = list(range(n))
    for last in range(n - 1, 0, -1):
        other = below(words, last + 1)
        items[last], items[other] = items[other], items[last]
    return items


if __name__ == "__main__":
    for arguments in ((0, "", 0, 0), (7, "augment", 3, 41), (2**64 - 1, "Größe", 1, 2**40)):
        print(arguments, [hex(w) for w in words64(*arguments, 12)])
    print([float.hex(w / 2**53) for w in (w >> 11 for w in words64(7, "augment", 3, 41, 3))])
    print(permutation(words64(1, "classes", 2, 0, 40), 16))
