"""gaccd's random numbers and its order of the samples: daemon/tensor/random.h, daemon/data/sample_order.h."""
import numpy

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix64(x):  # uint64 arrays
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def stream_key(a, b):  # StreamKey(a, b)
    start = numpy.array([(a + GOLDEN) & MASK], dtype=numpy.uint64)
    return int(mix64(mix64(start) + numpy.uint64((b + 1) * GOLDEN & MASK))[0])


def stream_values(key, count, first=0):  # StreamValue(key, first .. first + count-1)
    steps = numpy.arange(first + 1, first + count + 1, dtype=numpy.uint64) * numpy.uint64(GOLDEN)
    return mix64(numpy.uint64(key) + steps)


def stream(a, b, count):
    return stream_values(stream_key(a, b), count)


def uniform(bits):  # [-1, 1), 24 bits
    return (bits >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1


def order_of_epoch(seed, epoch, size, shuffle):
    """A keyed Feistel network over at least 8 bits; values outside of the set go through again."""
    if not shuffle:
        return list(range(size))
    bits = max(8, (size - 1).bit_length())
    low_bits, high_bits = bits // 2, bits - bits // 2
    keys = stream(seed, epoch, 8)
    value = numpy.arange(size, dtype=numpy.uint64)
    inside = numpy.zeros(size, dtype=bool)
    while not inside.all():
        low = value & numpy.uint64((1 << low_bits) - 1)
        high = value >> numpy.uint64(low_bits)
        for even, odd in zip(keys[::2], keys[1::2]):
            low = low ^ (mix64(high ^ even) & numpy.uint64((1 << low_bits) - 1))
            high = high ^ (mix64(low ^ odd) & numpy.uint64((1 << high_bits) - 1))
        value = numpy.where(inside, value, (high << numpy.uint64(low_bits)) | low)
        inside = value < size
    return value.tolist()
