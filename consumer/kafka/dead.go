package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/consumer"
)

// deadLetters writes messages that are given up.
type deadLetters struct {
	cfg    Config
	writer *kafka.Writer
}

// maxDeadBytes leaves the limit of a message's size to the broker.
const maxDeadBytes = 256 << 20

func newDeadLetters(cfg Config) *deadLetters {
	return &deadLetters{cfg: cfg, writer: &kafka.Writer{
		Addr: kafka.TCP(cfg.Dead.Brokers...), Topic: cfg.Dead.Topic, Transport: cfg.Dead.Transport,
		RequiredAcks: kafka.RequireAll, Balancer: kafka.Murmur2Balancer{Consistent: true},
		MaxAttempts: 1, BatchSize: 1, BatchTimeout: time.Millisecond, BatchBytes: maxDeadBytes,
	}}
}

// put writes a dead letter, and returns false if it was stopped before the
// brokers had it. Until then the partition waits: nothing is dropped.
func (l *deadLetters) put(ctx, work context.Context, m kafka.Message, death *consumer.Death) bool {
	from := fmt.Sprintf("%s/%d/%d", m.Topic, m.Partition, m.Offset)
	out := kafka.Message{Key: m.Key, Value: m.Value}
	for _, h := range death.Headers(headersOf(m), from, l.cfg.Consumer, time.Now()) {
		out.Headers = append(out.Headers, kafka.Header{Key: h.Name, Value: []byte(h.Value)})
	}
	wait := l.cfg.Retry.Backoff()
	for {
		err := l.writer.WriteMessages(work, out)
		if err == nil {
			l.cfg.Logger.ErrorContext(work, "a message was given up", "from", from, "to", l.cfg.Dead.Topic,
				"code", death.Code, "attempts", death.Attempts, "reason", death.Reason)
			return true
		}
		l.cfg.Logger.WarnContext(work, "writing a dead letter failed, its partition waits", "from", from, "to", l.cfg.Dead.Topic, "error", err)
		if !consumer.Sleep(work, ctx.Done(), wait()) {
			return false
		}
	}
}

func (l *deadLetters) close() {
	_ = l.writer.Close() // nothing waits in it: each write was answered
}
