package mongo

import (
	"encoding/binary"
	"hash/maphash"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// returned remembers, in few bytes, the documents that a scan has returned and
// that its next snapshot will show again. Both come in the order of seq, so two
// lists are walked side by side.
type returned struct {
	seed maphash.Seed
	// old is what earlier snapshots gave, read up to at. now is what the running
	// snapshot has passed.
	old, now seqList
	at       seqPlace
}

// seqList holds pairs of a seq and a hash of the id, by rising seq, as the
// difference to the seq before and four bytes.
type seqList struct {
	chunks [][]byte
	last   uint64
}

const (
	seqChunk  = 64 << 10
	seqRecord = binary.MaxVarintLen64 + 4
)

func (l *seqList) add(seq uint64, hash uint32) {
	n := len(l.chunks)
	if n == 0 || cap(l.chunks[n-1])-len(l.chunks[n-1]) < seqRecord {
		l.chunks = append(l.chunks, make([]byte, 0, seqChunk))
		n++
	}
	chunk := binary.AppendUvarint(l.chunks[n-1], seq-l.last)
	l.chunks[n-1] = binary.LittleEndian.AppendUint32(chunk, hash)
	l.last = seq
}

// seqPlace is a place in a seqList: behind the record with this seq.
type seqPlace struct {
	chunk, offset int
	seq           uint64
}

// next is the record at p and the place behind it.
func (l *seqList) next(p seqPlace) (hash uint32, behind seqPlace, ok bool) {
	for p.chunk < len(l.chunks) && p.offset == len(l.chunks[p.chunk]) {
		p.chunk, p.offset = p.chunk+1, 0
	}
	if p.chunk == len(l.chunks) {
		return 0, p, false
	}
	rest := l.chunks[p.chunk][p.offset:]
	delta, n := binary.Uvarint(rest)
	hash = binary.LittleEndian.Uint32(rest[n:])
	return hash, seqPlace{chunk: p.chunk, offset: p.offset + n + 4, seq: p.seq + delta}, true
}

// rewind begins a new snapshot.
func (r *returned) rewind() {
	if r.seed == (maphash.Seed{}) {
		r.seed = maphash.MakeSeed()
	}
	for r.pass(^uint64(0)) {
	}
	r.old, r.now, r.at = r.now, seqList{}, seqPlace{}
}

// pass moves on by one record, if the next one has a seq of at most limit.
func (r *returned) pass(limit uint64) bool {
	hash, behind, ok := r.old.next(r.at)
	if !ok || behind.seq > limit {
		return false
	}
	r.now.add(behind.seq, hash)
	for first := r.at.chunk; first < behind.chunk; first++ {
		r.old.chunks[first] = nil // it is copied
	}
	r.at = behind
	return true
}

// has tells whether the document was returned before. It is asked in the order
// of seq.
func (r *returned) has(seq uint64, id bson.RawValue) bool {
	for seq > 0 && r.pass(seq-1) {
	}
	want := r.hash(id)
	for at := r.at; ; {
		hash, behind, ok := r.old.next(at)
		if !ok || behind.seq != seq {
			return false
		}
		if hash == want {
			return true
		}
		at = behind
	}
}

// add notes a document that was returned now, and was not before.
func (r *returned) add(seq uint64, id bson.RawValue) { r.now.add(seq, r.hash(id)) }

func (r *returned) hash(id bson.RawValue) uint32 {
	return uint32(maphash.Bytes(r.seed, id.Value)) ^ uint32(id.Type) //nolint:gosec // four bytes of a hash
}

// idSet remembers ids by a hash of 16 bytes with a seed of its own, so that
// nobody can make two ids that meet. It stops growing at maxIDs: what it forgets
// comes twice.
type idSet struct {
	seeds [2]maphash.Seed
	ids   map[idHash]struct{}
}

type idHash [2]uint64

const maxIDs = 1 << 20

func (s *idSet) hash(id bson.RawValue) idHash {
	if s.ids == nil {
		s.ids = map[idHash]struct{}{}
		s.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	}
	var sum idHash
	for i, seed := range s.seeds {
		sum[i] = maphash.Bytes(seed, id.Value) ^ uint64(id.Type)
	}
	return sum
}

func (s *idSet) has(id bson.RawValue) bool {
	_, ok := s.ids[s.hash(id)]
	return ok
}

func (s *idSet) add(id bson.RawValue) {
	if sum := s.hash(id); len(s.ids) < maxIDs {
		s.ids[sum] = struct{}{}
	}
}
