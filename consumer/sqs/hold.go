package sqs

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/consumer"
)

// holder keeps messages from other consumers for as long as they are held.
type holder struct {
	cfg Config
	mu  sync.Mutex
	// held messages, by their receipt handles. The function ends the handler.
	held map[string]*holding
}

type holding struct {
	cancel context.CancelFunc
	// until is when the queue may give the message to another, counted from
	// before the last call that extended it.
	until time.Time
}

func newHolder(cfg Config) *holder { return &holder{cfg: cfg, held: map[string]*holding{}} }

// hold begins, for a message that was received by a call that began then. The
// context ends when the message is no longer this consumer's.
func (h *holder) hold(ctx context.Context, receipt string, began time.Time) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[receipt] = &holding{cancel: cancel, until: began.Add(h.cfg.Visibility)}
	return ctx
}

func (h *holder) release(receipt string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.held[receipt]; held != nil {
		held.cancel()
		delete(h.held, receipt)
	}
}

func (h *holder) receipts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	receipts := make([]string, 0, len(h.held))
	for receipt := range h.held {
		receipts = append(receipts, receipt)
	}
	return receipts
}

// extended notes what a call said of one message.
func (h *holder) extended(receipt string, began time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[receipt]
	switch {
	case held == nil:
	case ok:
		held.until = began.Add(h.cfg.Visibility)
	case !time.Now().Before(held.until):
		held.cancel() // another may have it
	}
}

// run extends the visibility of all that is held at each third of it.
func (h *holder) run(ctx context.Context) {
	for consumer.Sleep(ctx, nil, h.cfg.Visibility/3) {
		receipts := h.receipts()
		for len(receipts) > 0 {
			n := min(len(receipts), maxEntries)
			h.extend(ctx, receipts[:n])
			receipts = receipts[n:]
		}
	}
}

// maxEntries is the most messages of a batch.
const maxEntries = 10

func (h *holder) extend(ctx context.Context, receipts []string) {
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, h.cfg.Visibility/3)
	defer cancel()
	out, err := h.cfg.Client.ChangeMessageVisibilityBatch(call, h.change(receipts, h.cfg.Visibility))
	if ctx.Err() != nil {
		return
	}
	failed := map[string]bool{}
	if err != nil {
		h.cfg.Logger.WarnContext(ctx, "extending the visibility of messages failed", "messages", len(receipts), "error", err)
	} else {
		for _, f := range out.Failed {
			failed[aws.ToString(f.Id)] = true
		}
	}
	for i, receipt := range receipts {
		h.extended(receipt, began, err == nil && !failed[strconv.Itoa(i)])
	}
}

func (h *holder) change(receipts []string, visibility time.Duration) *sqs.ChangeMessageVisibilityBatchInput {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &h.cfg.QueueURL}
	for i, receipt := range receipts {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(receipt), VisibilityTimeout: int32(visibility / time.Second),
		})
	}
	return in
}
