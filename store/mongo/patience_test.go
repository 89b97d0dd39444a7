package mongo

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// throughProxy returns the connection string of the shared replica set through
// a proxy, and what makes the proxy swallow everything without a word.
func throughProxy(t *testing.T) (uri string, swallow func()) {
	t.Helper()
	shared, err := url.Parse(servicetest.MongoURL(t))
	if err != nil {
		t.Fatal(err)
	}
	nothing := zerolog.Nop()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), nothing)
	proxy := toxiproxy.NewProxy(server, servicetest.Name(t), "127.0.0.1:0", strings.Split(shared.Host, ",")[0])
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	host, port, err := net.SplitHostPort(proxy.Listen)
	if err != nil {
		t.Fatal(err)
	}
	swallow = func() {
		for _, direction := range []string{"upstream", "downstream"} {
			toxic := `{"type": "timeout", "stream": "` + direction + `", "attributes": {"timeout": 0}}`
			if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return "mongodb://" + net.JoinHostPort(host, port) + "/?directConnection=true", swallow
}

func TestAServerThatFallsSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	uri, swallow := throughProxy(t)
	behind := servicetest.DatabaseOf(t, servicetest.Client(t, servicetest.MongoURL(t)))
	s := newStore(t, servicetest.Client(t, uri).Database(behind.Name()), impatient)
	direct := newStore(t, behind, impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	c.reader.patience.base = time.Second
	appendIDs(t, direct, "a")
	readTo(t, c, "a")
	swallow()
	appendIDs(t, direct, "b")
	begun := time.Now()
	for {
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if holds(b.Entries, "b") {
			t.Fatal("the proxy let an event through")
		}
		if err != nil {
			break
		}
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %s to give up", took)
	}
	c.reader.close(t.Context())
	// Nothing was lost: the place is still that of the last event.
	wantIDs(t, readTo(t, cursorOf(t, direct, core.Start{}), "b"), "b")
}

func TestPatienceGrowsWithEachFailureAndEndsWithTheCaller(t *testing.T) {
	t.Parallel()
	p := patience{base: time.Millisecond}
	wait := func(ctx context.Context) { <-ctx.Done() }
	for i := range 3 {
		begun := time.Now()
		if err := p.call(t.Context(), wait); !errors.Is(err, errNoAnswer) {
			t.Fatalf("call %d: %v", i, err)
		}
		if took := time.Since(begun); took < time.Millisecond<<i {
			t.Errorf("call %d was given up after %s", i, took)
		}
	}
	if p.failures != 3 {
		t.Errorf("%d failures were counted, want 3", p.failures)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.call(ctx, wait); err != nil || p.failures != 3 {
		t.Errorf("a call that the caller stopped gave %v and %d failures", err, p.failures)
	}
	if err := p.call(t.Context(), func(context.Context) {}); err != nil {
		t.Errorf("a call that was answered gave %v", err)
	}
}
