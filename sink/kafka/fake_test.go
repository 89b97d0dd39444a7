package kafka

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fake starts brokers in this process, with topics of three partitions.
func fake(t testing.TB, topics []string, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, topics...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// sent is one record set that reached a broker.
type sent struct {
	topic     string
	partition int32
	records   int
	bytes     []byte
}

func (s sent) has(id string) bool { return bytes.Contains(s.bytes, []byte(id)) }

// recorder notes all record sets that reach a cluster, in order.
type recorder struct {
	mu   sync.Mutex
	sets []sent
}

func (r *recorder) all() []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sets)
}

func (r *recorder) note(sets []sent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets = append(r.sets, sets...)
}

func record(c *kfake.Cluster) *recorder {
	r := &recorder{}
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.note(setsOf(req.(*kmsg.ProduceRequest)))
		return nil, nil, false
	})
	return r
}

func setsOf(req *kmsg.ProduceRequest) []sent {
	var sets []sent
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			sets = append(sets, sent{t.Topic, p.Partition, int(binary.BigEndian.Uint32(p.Records[57:])), bytes.Clone(p.Records)})
		}
	}
	return sets
}

// refuse answers record sets for which code is not 0 with it, and all others of
// the same request as stored. It is a broker of its own: nothing is kept.
func refuse(c *kfake.Cluster, code func(sent) int16) *recorder {
	r := &recorder{}
	offsets := map[int32]int64{}
	c.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		sets := setsOf(req)
		r.note(sets)
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, s := range sets {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = s.partition, code(s)
			if p.ErrorCode == 0 {
				p.BaseOffset = offsets[s.partition]
				offsets[s.partition] += int64(s.records)
			}
			t := kmsg.NewProduceResponseTopic()
			t.Topic, t.Partitions = s.topic, append(t.Partitions, p)
			res.Topics = append(res.Topics, t)
		}
		return res, nil, true
	})
	return r
}
