package sqs

import (
	"crypto/md5" //nolint:gosec // SQS's protocol has it
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/gooutbox/outbox/internal/wire"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// server is SQS as its documentation describes it, stricter than emulators are:
// a request that breaks a limit of AWS fails the test, unless it is told to be
// lenient. What it answers can be scripted.
type server struct {
	t    testing.TB
	http *httptest.Server

	mu      sync.Mutex
	queues  map[string]*fakeQueue
	batches []batch
	asked   map[string]int
	script  func(b *batch) reaction
	lookup  func(op string) reaction
	lenient bool
	last    int
	// changed is filled after something was stored.
	changed chan struct{}
}

type fakeQueue struct {
	limit  int
	stored []sent
	dedup  map[string]string
}

// sent is a message as it was sent.
type sent struct {
	ID                string `json:"Id"`
	MessageBody       string
	Group             string `json:"MessageGroupId"`
	Dedup             string `json:"MessageDeduplicationId"`
	MessageAttributes map[string]struct{ DataType, StringValue string }
}

// batch is a request.
type batch struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []sent
	queue    string
}

// reaction is what becomes of a request. The zero value stores and confirms.
type reaction struct {
	// status and code answer the request as a whole; nothing is stored unless
	// stores is set.
	status int
	code   string
	header map[string]string
	stores bool
	// cut ends the connection without an answer, after storing.
	cut bool
	// refuse doesn't store some entries, by id, and says why.
	refuse map[string]failure
	// omit stores some entries and doesn't mention them.
	omit map[string]bool
	// both mentions entries as stored and as failed.
	both map[string]bool
	// wait is waited for before the answer.
	wait <-chan struct{}
	// text is the whole answer, as it is.
	text string
}

type failure struct {
	code   string
	sender bool
}

func newServer(t testing.TB, queues ...string) *server {
	t.Helper()
	s := &server{t: t, queues: map[string]*fakeQueue{}, asked: map[string]int{}, changed: make(chan struct{}, 1)}
	for _, name := range queues {
		s.create(name, maxBatchBytes)
	}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) create(name string, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[name] = &fakeQueue{limit: limit, dedup: map[string]string{}}
}

func (s *server) setLimit(name string, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[name].limit = limit
}

// on sets the script, nil for none.
func (s *server) on(script func(b *batch) reaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// onLookup sets what becomes of look-ups.
func (s *server) onLookup(script func(op string) reaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookup = script
}

func (s *server) sentBatches() []batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.batches)
}

func (s *server) requests(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[op]
}

// messages reads what a queue holds, in order.
func (s *server) messages(t testing.TB, queue string) []sinktest.Message {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []sinktest.Message
	for i := range s.queues[queue].stored {
		m := s.queues[queue].stored[i].read(t)
		all = append(all, sinktest.Message{ID: m.headers["ce_id"], Key: m.headers["ce_partitionkey"], Payload: m.payload})
	}
	return all
}

// read reads a message as docs/wire.md says.
func (m *sent) read(t testing.TB) received {
	t.Helper()
	var headers []wire.Header
	for name, a := range m.MessageAttributes {
		headers = append(headers, wire.Header{Name: name, Value: a.StringValue})
	}
	headers, err := wire.Gather(headers)
	if err != nil {
		t.Error(err)
	}
	r := received{headers: map[string]string{}, group: m.Group, body: m.MessageBody}
	for _, h := range headers {
		r.headers[h.Name] = h.Value
	}
	if r.payload, err = wire.Payload(m.MessageBody, r.headers[wire.Body]); err != nil {
		t.Error(err)
	}
	return r
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	s.mu.Lock()
	s.asked[op]++
	script, lookup := s.script, s.lookup
	s.mu.Unlock()
	if op != "SendMessageBatch" {
		var do reaction
		if lookup != nil {
			do = lookup(op)
		}
		if answered(w, r, &do) {
			return
		}
		s.look(w, op, body)
		return
	}
	var b batch
	if err := json.Unmarshal(body, &b); err != nil {
		s.t.Errorf("a request that is no JSON: %v", err)
		return
	}
	b.queue = b.QueueURL[strings.LastIndexByte(b.QueueURL, '/')+1:]
	s.mu.Lock()
	s.batches = append(s.batches, b)
	s.mu.Unlock()
	var do reaction
	if script != nil {
		do = script(&b)
	}
	if !do.stores && !do.cut && do.wait == nil && answered(w, r, &do) {
		return
	}
	s.take(w, r, &b, &do)
}

// answered tells whether the reaction is an answer of its own.
func answered(w http.ResponseWriter, r *http.Request, do *reaction) bool {
	if do.wait != nil {
		select {
		case <-do.wait:
		case <-r.Context().Done():
		}
	}
	switch {
	case do.cut:
		panic(http.ErrAbortHandler)
	case do.text != "":
		_, _ = io.WriteString(w, do.text)
	case do.status != 0:
		refuse(w, do.status, do.code, do.header)
	default:
		return false
	}
	return true
}

func refuse(w http.ResponseWriter, status int, code string, header map[string]string) {
	for name, value := range header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	if strings.HasPrefix(code, "<") {
		_, _ = io.WriteString(w, code)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": "as scripted"})
}

func (s *server) look(w http.ResponseWriter, op string, body []byte) {
	var q struct {
		QueueName string
		QueueURL  string `json:"QueueUrl"`
	}
	_ = json.Unmarshal(body, &q)
	name := q.QueueName + q.QueueURL[strings.LastIndexByte(q.QueueURL, '/')+1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.queues[name]
	switch {
	case known == nil:
		refuse(w, 400, "QueueDoesNotExist", map[string]string{"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"})
	case op == "GetQueueUrl":
		_ = json.NewEncoder(w).Encode(map[string]string{"QueueUrl": s.url(name)})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"Attributes": map[string]string{"MaximumMessageSize": fmt.Sprint(known.limit)}})
	}
}

func (s *server) url(queue string) string {
	return "https://sqs.eu-west-1.amazonaws.com/123456789012/" + queue
}

// take stores a batch and answers.
func (s *server) take(w http.ResponseWriter, r *http.Request, b *batch, do *reaction) {
	s.mu.Lock()
	q := s.queues[b.queue]
	if q == nil {
		s.mu.Unlock()
		refuse(w, 400, "QueueDoesNotExist", map[string]string{"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"})
		return
	}
	if problem := problemWith(b, q.limit); problem != "" {
		if !s.lenient {
			s.t.Errorf("a request that AWS refuses: %s", problem)
		}
		s.mu.Unlock()
		refuse(w, 400, "InvalidParameterValue", nil)
		return
	}
	type success struct {
		ID               string `json:"Id"`
		MessageID        string `json:"MessageId"`
		MD5OfMessageBody string
	}
	type failed struct {
		ID            string `json:"Id"`
		Code, Message string
		SenderFault   bool
	}
	out := struct {
		Successful []success
		Failed     []failed
	}{}
	for _, m := range b.Entries {
		if f, refused := do.refuse[m.ID]; refused {
			out.Failed = append(out.Failed, failed{ID: m.ID, Code: f.code, Message: "as scripted", SenderFault: f.sender})
			continue
		}
		id, repeated := q.dedup[m.Dedup]
		if !repeated {
			s.last++
			id = fmt.Sprintf("message-%d", s.last)
			q.stored = append(q.stored, m)
			if m.Dedup != "" {
				q.dedup[m.Dedup] = id
			}
		}
		if do.omit[m.ID] {
			continue
		}
		sum := md5.Sum([]byte(m.MessageBody)) //nolint:gosec // SQS's protocol has it
		out.Successful = append(out.Successful, success{ID: m.ID, MessageID: id, MD5OfMessageBody: hex.EncodeToString(sum[:])})
		if do.both[m.ID] {
			out.Failed = append(out.Failed, failed{ID: m.ID, Code: "InternalError", Message: "as scripted"})
		}
	}
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	do.stores = false
	if !answered(w, r, do) {
		_ = json.NewEncoder(w).Encode(out)
	}
}

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

var identifierText = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\\[\\\\\\]^_`{|}~-]{1,128}$")

// problemWith looks for what AWS's documentation forbids. The numbers are
// written out here, apart from those of the sink.
func problemWith(b *batch, limit int) string {
	fifo := strings.HasSuffix(b.queue, ".fifo")
	if n := len(b.Entries); n < 1 || n > 10 {
		return fmt.Sprintf("%d entries", n)
	}
	ids, total := map[string]bool{}, 0
	for _, m := range b.Entries {
		size := len(m.MessageBody)
		if !entryID.MatchString(m.ID) || ids[m.ID] {
			return fmt.Sprintf("entry id %q", m.ID)
		}
		ids[m.ID] = true
		if m.MessageBody == "" || !isAllowed(m.MessageBody) {
			return fmt.Sprintf("body %.40q", m.MessageBody)
		}
		if len(m.MessageAttributes) > 10 {
			return fmt.Sprintf("%d attributes", len(m.MessageAttributes))
		}
		for name, a := range m.MessageAttributes {
			lower := strings.ToLower(name)
			if !attributeName.MatchString(name) || len(name) > 256 || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
				return fmt.Sprintf("attribute name %q", name)
			}
			if a.DataType != "String" || a.StringValue == "" || !isAllowed(a.StringValue) {
				return fmt.Sprintf("attribute %s of %s is %q", name, a.DataType, a.StringValue)
			}
			size += len(name) + len(a.DataType) + len(a.StringValue)
		}
		if size > limit {
			return fmt.Sprintf("a message of %d bytes", size)
		}
		total += size
		if fifo && (!identifierText.MatchString(m.Group) || !identifierText.MatchString(m.Dedup)) {
			return fmt.Sprintf("group %q, deduplication id %q", m.Group, m.Dedup)
		}
		if !fifo && m.Dedup != "" {
			return "a deduplication id on a standard queue"
		}
	}
	if total > 1_048_576 {
		return fmt.Sprintf("%d bytes", total)
	}
	return ""
}

func isAllowed(s string) bool {
	for _, r := range s {
		if r != 9 && r != 10 && r != 13 && (r < 0x20 || r > 0xD7FF && r < 0xE000 || r > 0xFFFD && r < 0x10000) {
			return false
		}
	}
	return utf8.ValidString(s)
}
