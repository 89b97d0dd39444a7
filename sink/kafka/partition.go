package kafka

// partitionOf is the partition that Kafka's Java client gives a key: an empty
// key is a key like any other.
func partitionOf(key string, partitions int) int32 {
	return int32(murmur2(key)&0x7fffffff) % int32(partitions)
}

// murmur2 is the 32-bit MurmurHash2 with the seed of Kafka's clients.
func murmur2(key string) uint32 {
	const (
		seed  = 0x9747b28c
		mix   = 0x5bd1e995
		shift = 24
	)
	h := uint32(seed) ^ uint32(len(key))
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= mix
		k ^= k >> shift
		k *= mix
		h = h*mix ^ k
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= mix
	}
	h ^= h >> 13
	h *= mix
	h ^= h >> 15
	return h
}
