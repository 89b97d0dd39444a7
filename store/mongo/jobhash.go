package mongo

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// contentHash tells jobs of the same content. It outlives the payload.
type contentHash struct {
	sum *bson.Binary // nil where there is none
	// key names what keyed it, empty for a plain hash.
	key string
}

// differs tells that the contents are not the same, as far as it can be told:
// hashes under different keys can't be compared.
func (h contentHash) differs(other contentHash) bool {
	return h.sum != nil && other.sum != nil && h.key == other.key && !bytes.Equal(h.sum.Data, other.sum.Data)
}

// hashJob is the hash of what a job delivers and to which sink: neither ids and
// times, which differ from one request to the next, nor how it is delivered.
// Where payloads are sealed a plain hash would let a reader of the database try
// guesses, so it is keyed by Config.HashKey, and there is none without a key.
func (s *Store) hashJob(job *core.Job) contentHash {
	var h contentHash
	var sum hash.Hash
	switch {
	case s.cfg.HashKey != nil:
		sum = hmac.New(sha256.New, s.cfg.HashKey)
		h.key = hashKeyName(s.cfg.HashKey)
	case s.cfg.Codec != nil:
		return h
	default:
		sum = sha256.New()
	}
	field := func(b []byte) {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		sum.Write(b)
	}
	number := func(n int64) { sum.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) } //nolint:gosec // all bits count
	for _, text := range []string{job.Sink, job.Tenant, job.Aggregate, job.AggregateID, job.Type, job.ContentType} {
		field([]byte(text))
	}
	number(int64(job.Version))
	number(job.AggregateVersion)
	for _, header := range sortedHeaders(job.Headers) {
		if value, ok := header.Value.(string); ok && !s.isTraceHeader(header.Key) {
			field([]byte(strings.ToLower(header.Key)))
			field([]byte(value))
		}
	}
	field(nil) // headers have no empty name
	field(job.Payload)
	h.sum = &bson.Binary{Data: sum.Sum(nil)}
	return h
}

// isTraceHeader tells headers that differ from one request to the next.
func (s *Store) isTraceHeader(name string) bool {
	return slices.ContainsFunc(s.cfg.Propagator.Fields(), func(f string) bool { return strings.EqualFold(f, name) })
}

// hashKeyName tells keys apart without telling them.
func hashKeyName(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}
