// Webhooks plays a payment provider that sends webhooks to an endpoint: some
// twice, some signed with a wrong key, and while the endpoint is killed. A relay
// brings the events of all to Kafka, and of some to RabbitMQ. In the end what
// came there is compared with what the endpoint has acknowledged.
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/gooutbox/outbox/examples/internal/example"
)

func main() { example.Main(run) }

// types of the provider's webhooks, in turn.
var types = []string{"authorized", "captured", "refunded", "disputed"}

const webhooks = 60

// run writes the count to out.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := example.Limit(ctx)
	defer cancel()
	stage, err := example.Open("webhooks", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	if err := stage.Build(ctx, "cmd/outbox", "examples/webhooks/endpoint"); err != nil {
		return err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	p := &provider{url: "http://" + address + "/webhooks", key: []byte(rand.Text())}
	stage.Set("WEBHOOK_KEY", string(p.key))
	stage.Set("LISTEN", address)
	endpoint, err := stage.Start(ctx, "endpoint")
	if err != nil {
		return err
	}
	relay, err := stage.Relay(ctx, "examples/webhooks")
	if err != nil {
		return err
	}
	for n := range webhooks {
		if n == webhooks/2 {
			endpoint.Kill() // the provider gets no answer, and tries again
			if endpoint, err = stage.Start(ctx, "endpoint"); err != nil {
				return err
			}
		}
		if err := p.send(ctx, n); err != nil {
			return err
		}
	}
	counts, err := readBoth(ctx, stage)
	if err := errors.Join(err, endpoint.Stop(), relay.Stop()); err != nil {
		return err
	}
	fmt.Fprintf(out, "webhooks=%d forged=%d kafka=%d rabbitmq=%d\n", p.accepted, p.refused, counts.kafka, counts.amqp)
	return nil
}

// freeAddress is one that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// provider sends webhooks until they are acknowledged, as providers do.
type provider struct {
	url               string
	key               []byte
	accepted, refused int
}

// send sends one webhook; every third is sent twice, as after an answer that was
// lost, and every tenth also by somebody who doesn't know the key.
func (p *provider) send(ctx context.Context, n int) error {
	body := fmt.Appendf(nil, `{"id":"wh-%d","type":%q,"payment":"pay-%d"}`, n, types[n%len(types)], n/len(types))
	if n%10 == 0 {
		if err := p.post(ctx, []byte("another key"), body, http.StatusUnauthorized); err != nil {
			return fmt.Errorf("sending a forged webhook: %w", err)
		}
		p.refused++
	}
	times := 1
	if n%3 == 0 {
		times = 2
	}
	for range times {
		if err := p.post(ctx, p.key, body, http.StatusOK); err != nil {
			return fmt.Errorf("sending webhook %d: %w", n, err)
		}
	}
	p.accepted++
	return nil
}

// post sends a body until there is an answer that means something; it must be
// the one that is wanted.
func (p *provider) post(ctx context.Context, key, body []byte, want int) error {
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return example.Await(ctx, "the endpoint", func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
		if err != nil {
			return false, err
		}
		request.Header.Set("X-Signature", hex.EncodeToString(mac.Sum(nil)))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, nil // the endpoint is away: again
		}
		defer response.Body.Close() //nolint:errcheck // it was read or isn't needed
		if response.StatusCode != want && response.StatusCode < http.StatusInternalServerError {
			return false, fmt.Errorf("it answers %s", response.Status)
		}
		return response.StatusCode == want, nil
	})
}
