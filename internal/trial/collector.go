package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// Record is one record that Kafka holds.
type Record struct {
	Partition int
	Offset    int64
	Key       string
	Value     []byte
	Headers   map[string]string
	// ID is the CloudEvents id, and Fence that of the term that sent it.
	ID, Fence string
	// At is when the collector read the record.
	At time.Time
}

// Collector reads all partitions of a topic, each from its beginning, and keeps
// what it read. It goes on where it was after an error, so it lives through a
// restart of the broker. Its methods may be called by several goroutines.
type Collector struct {
	brokers []string
	topic   string

	reading sync.Mutex // held while CatchUp reads
	client  *kafka.Client

	mu      sync.Mutex
	offsets map[int]int64
	records []Record
	ids     map[string]struct{}
	repeats int
}

// NewCollector makes a collector of a topic. It connects when CatchUp is
// called. Close it at the end.
func NewCollector(brokers []string, topic string) *Collector {
	return &Collector{
		brokers: brokers, topic: topic, client: NewKafkaClient(brokers),
		offsets: map[int]int64{}, ids: map[string]struct{}{},
	}
}

// NewKafkaClient makes a client for tests and benches. Its Transport is a
// *kafka.Transport, whose idle connections its user closes.
func NewKafkaClient(brokers []string) *kafka.Client {
	return &kafka.Client{
		Addr: kafka.TCP(brokers...), Timeout: 15 * time.Second,
		Transport: &kafka.Transport{DialTimeout: 3 * time.Second, MetadataTTL: 2 * time.Second},
	}
}

// Close ends the collector's connections.
func (c *Collector) Close() {
	c.reading.Lock()
	defer c.reading.Unlock()
	c.disconnect()
}

func (c *Collector) disconnect() { c.client.Transport.(*kafka.Transport).CloseIdleConnections() }

// CatchUp reads to where the partitions ended when it was called, and at least
// that far.
func (c *Collector) CatchUp(ctx context.Context) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	err := c.catchUp(ctx)
	if err != nil {
		// A client that met a broker in its restart takes seconds to find it
		// again; a new one asks at once.
		c.disconnect()
		c.client = NewKafkaClient(c.brokers)
	}
	return err
}

func (c *Collector) catchUp(ctx context.Context) error {
	ends, err := c.ends(ctx)
	if err != nil {
		return fmt.Errorf("asking for the ends of topic %s: %w", c.topic, err)
	}
	for partition, end := range ends {
		for c.offset(partition) < end {
			if err := c.fetch(ctx, partition); err != nil {
				return fmt.Errorf("reading partition %d of topic %s: %w", partition, c.topic, err)
			}
		}
	}
	return nil
}

// Follow calls CatchUp again and again until ctx ends, through errors.
func (c *Collector) Follow(ctx context.Context) {
	for ctx.Err() == nil {
		_ = c.CatchUp(ctx) // an unreachable broker is tried again
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Events is the number of different ids, Repeats that of records beyond the
// first of an id, read so far.
func (c *Collector) Events() (events, repeats int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids), c.repeats
}

// Has tells whether a record with this id was read.
func (c *Collector) Has(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.ids[id]
	return ok
}

// Records returns what was read so far, in order within each partition.
func (c *Collector) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[:len(c.records):len(c.records)]
}

func (c *Collector) offset(partition int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offsets[partition]
}

// ends returns the offset after the last record of each partition; none for a
// topic that doesn't exist.
func (c *Collector) ends(ctx context.Context) (map[int]int64, error) {
	meta, err := c.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{c.topic}})
	if err != nil {
		return nil, err
	}
	var requests []kafka.OffsetRequest
	for _, t := range meta.Topics {
		if errors.Is(t.Error, kafka.UnknownTopicOrPartition) {
			return nil, nil
		}
		if t.Error != nil {
			return nil, t.Error
		}
		for _, p := range t.Partitions {
			requests = append(requests, kafka.LastOffsetOf(p.ID))
		}
	}
	offsets, err := c.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{c.topic: requests},
	})
	if err != nil {
		return nil, err
	}
	ends := map[int]int64{}
	for _, p := range offsets.Topics[c.topic] {
		if p.Error != nil {
			return nil, p.Error
		}
		ends[p.Partition] = p.LastOffset
	}
	return ends, nil
}

// fetch reads once from a partition.
func (c *Collector) fetch(ctx context.Context, partition int) error {
	from := c.offset(partition)
	response, err := c.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: c.topic, Partition: partition, Offset: from,
		MinBytes: 1, MaxBytes: 8 << 20, MaxWait: time.Second,
	})
	if err != nil {
		return err
	}
	if response.Error != nil {
		return response.Error
	}
	for {
		r, err := response.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.Offset < from {
			continue // a batch may begin before the offset that was asked for
		}
		record, err := newRecord(partition, r)
		if err != nil {
			return err
		}
		c.add(record)
	}
}

func (c *Collector) add(r Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
	c.offsets[r.Partition] = r.Offset + 1
	if _, again := c.ids[r.ID]; again {
		c.repeats++
	}
	c.ids[r.ID] = struct{}{}
}

func newRecord(partition int, r *kafka.Record) (Record, error) {
	key, err := readAll(r.Key)
	if err != nil {
		return Record{}, err
	}
	value, err := readAll(r.Value)
	if err != nil {
		return Record{}, err
	}
	record := Record{
		Partition: partition, Offset: r.Offset, Key: string(key), Value: value,
		Headers: make(map[string]string, len(r.Headers)), At: time.Now(),
	}
	for _, h := range r.Headers {
		record.Headers[h.Key] = string(h.Value)
	}
	record.ID, record.Fence = record.Headers["ce_id"], record.Headers["ce_outboxfence"]
	if record.ID == "" {
		record.ID = fmt.Sprintf("record without ce_id at %d/%d", partition, r.Offset)
	}
	return record, nil
}

func readAll(b kafka.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer b.Close() //nolint:errcheck // it is in memory
	return kafka.ReadAll(b)
}
