package memory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gooutbox/outbox/sink/mail"
)

// List is a mail.SuppressionList. Its zero value is an empty list, ready for use.
type List struct {
	mu      sync.Mutex
	entries map[string]mail.Suppression
}

var _ mail.SuppressionList = (*List)(nil)

// Suppressed keeps to mail.Suppressions.
func (l *List) Suppressed(_ context.Context, addresses []string) (map[string]mail.Suppression, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]mail.Suppression{}
	for _, address := range addresses {
		if e, ok := l.entries[mail.SuppressionKey(address)]; ok && (e.Until.IsZero() || time.Now().Before(e.Until)) {
			found[address] = e
		}
	}
	return found, nil
}

// Add keeps to mail.SuppressionList.
func (l *List) Add(_ context.Context, entries ...mail.Suppression) error {
	for _, e := range entries {
		if mail.SuppressionKey(e.Address) == "" || e.Reason == "" {
			return errors.New("suppressing an address: Address and Reason are required")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[string]mail.Suppression{}
	}
	for _, e := range entries {
		key := mail.SuppressionKey(e.Address)
		e.Address, e.Detail, e.Since = key, cut(e.Detail), time.Now()
		if old, known := l.entries[key]; known && (old.Until.IsZero() || time.Now().Before(old.Until)) {
			e.Since = old.Since
			if old.Until.IsZero() || !e.Until.IsZero() && old.Until.After(e.Until) {
				e.Until = old.Until
			}
		}
		l.entries[key] = e
	}
	return nil
}

// Remove keeps to mail.SuppressionList.
func (l *List) Remove(_ context.Context, address string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := mail.SuppressionKey(address)
	e, known := l.entries[key]
	delete(l.entries, key)
	return known && (e.Until.IsZero() || time.Now().Before(e.Until)), nil
}
