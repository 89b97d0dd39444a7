// Endpoint receives webhooks, as those of a payment provider. It answers 200
// only when the webhook and its event are committed, so that the provider sends
// again what was lost; and it stores one that comes again once.
package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// largest is the most bytes of a body.
const largest = 64 << 10

// endpoint is the handler.
type endpoint struct {
	key      []byte
	outbox   *mongostore.Store
	received *mongo.Collection
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
	if err != nil {
		http.Error(w, "the body can't be read", http.StatusBadRequest)
		return
	}
	// What isn't the provider's leaves nothing behind.
	mac := hmac.New(sha256.New, e.key)
	mac.Write(body)
	if signature, err := hex.DecodeString(r.Header.Get("X-Signature")); err != nil || !hmac.Equal(signature, mac.Sum(nil)) {
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	var hook struct {
		ID      string `json:"id"`
		Type    string `json:"type"`
		Payment string `json:"payment"`
	}
	if err := json.Unmarshal(body, &hook); err != nil || hook.ID == "" || hook.Type == "" || hook.Payment == "" {
		http.Error(w, "the body is no webhook", http.StatusBadRequest)
		return
	}
	event := core.Event{ID: "webhook-" + hook.ID, Aggregate: "payment", AggregateID: hook.Payment, Type: "payment." + hook.Type, Payload: body}
	switch err := e.store(r.Context(), hook.ID, event); {
	case mongo.IsDuplicateKeyError(err): // it is stored already, and so is its event
	case err != nil:
		http.Error(w, "not stored: send it again", http.StatusServiceUnavailable)
	}
}

// store writes the webhook and its event in one transaction.
func (e *endpoint) store(ctx context.Context, id string, event core.Event) error {
	return e.outbox.InTransaction(ctx, func(ctx context.Context) error {
		_, err := e.received.InsertOne(ctx, bson.D{
			{Key: "_id", Value: id}, {Key: "at", Value: time.Now()}, {Key: "body", Value: event.Payload},
		})
		if err != nil {
			return err
		}
		return e.outbox.Append(ctx, event)
	})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	key := os.Getenv("WEBHOOK_KEY")
	if key == "" {
		return errors.New("set WEBHOOK_KEY to the key that the provider signs with")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	db := client.Database(cmp.Or(os.Getenv("DATABASE"), "payments"))
	outbox, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		return err
	}
	if err := outbox.EnsureIndexes(ctx); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /webhooks", &endpoint{[]byte(key), outbox, db.Collection("webhooks")})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return server.Shutdown(context.WithoutCancel(ctx))
	}
}
