package sqlite

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"slices"
	"strings"

	"github.com/gooutbox/outbox/core"
)

// contentHash tells jobs of the same content. It outlives the payload.
type contentHash struct {
	sum []byte // nil where there is none
	// key names what keyed it, empty for a plain hash.
	key string
}

// differs tells that the contents are not the same, as far as it can be told:
// hashes under different keys can't be compared.
func (h contentHash) differs(other contentHash) bool {
	return h.sum != nil && other.sum != nil && h.key == other.key && !bytes.Equal(h.sum, other.sum)
}

// hashJob is the hash of what a job delivers and to which sink: neither ids and
// times, which differ from one request to the next, nor how it is delivered.
// Where payloads are sealed a plain hash would let a reader of the file try
// guesses, so it is keyed by Config.HashKey, and there is none without a key.
func (s *Store) hashJob(job *core.Job) contentHash {
	var h contentHash
	var sum hash.Hash
	switch {
	case s.cfg.HashKey != nil:
		sum = hmac.New(sha256.New, s.cfg.HashKey)
		name := sha256.Sum256(s.cfg.HashKey)
		h.key = hex.EncodeToString(name[:4])
	case s.cfg.Codec != nil:
		return h
	default:
		sum = sha256.New()
	}
	headers := map[string]string{} // which JSON writes sorted
	for name, value := range job.Headers {
		if !s.isTraceHeader(name) {
			headers[strings.ToLower(name)] = value
		}
	}
	// Text, numbers and bytes alone: it can't fail.
	content, _ := json.Marshal([]any{
		job.Sink, job.Tenant, job.Aggregate, job.AggregateID, job.Type, job.ContentType, job.Version, job.AggregateVersion,
		headers, job.Payload,
	})
	sum.Write(content)
	h.sum = sum.Sum(nil)
	return h
}

// isTraceHeader tells headers that differ from one request to the next.
func (s *Store) isTraceHeader(name string) bool {
	return slices.ContainsFunc(s.cfg.Propagator.Fields(), func(f string) bool { return strings.EqualFold(f, name) })
}
