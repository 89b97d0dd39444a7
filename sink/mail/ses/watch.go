package ses

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// sightKey is where a call keeps what the watcher saw of its request.
type sightKey struct{}

// sight is what is known of one request.
type sight struct {
	// whole: every byte of it was handed to the connection, so that SES may have
	// all of it.
	whole bool
}

// watcher tells whether a request could have arrived as a whole, and sees to it
// that none does after its call has ended.
type watcher struct{ next aws.HTTPClient }

// Do sends one request.
func (w watcher) Do(req *http.Request) (*http.Response, error) {
	body := &watched{body: req.Body, left: req.ContentLength}
	if req.Body != nil {
		req.Body = body
	}
	req.GetBody = nil // no request is sent a second time
	resp, err := w.next.Do(req)
	if seen, ok := req.Context().Value(sightKey{}).(*sight); ok {
		seen.whole = body.seal()
	}
	return resp, err
}

// watched is a request's body that counts what is read of it.
type watched struct {
	mu     sync.Mutex
	body   io.ReadCloser
	left   int64
	sealed bool
}

var errSealed = errors.New("the call has ended")

func (b *watched) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return 0, errSealed
	}
	n, err := b.body.Read(p)
	b.left -= int64(n)
	return n, err
}

func (b *watched) Close() error { return b.body.Close() }

// seal lets nothing more be read, and tells whether all was.
func (b *watched) seal() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = true
	return b.left <= 0
}
