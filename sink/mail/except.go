package mail

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// exceptions are recipients that a mail doesn't go to, now or for good.
type exceptions struct {
	suppressed map[string]*Suppression
	// paused are the answers of paused domains.
	paused map[string]*core.Result
}

// exceptions asks the suppressions and the pauses.
func (s *Sink) exceptions(ctx context.Context, addresses []string) (not exceptions, err error) {
	if not.paused, err = s.pauses.now(ctx); err != nil {
		return not, err
	}
	if s.cfg.Suppressions == nil {
		return not, nil
	}
	found, err := s.cfg.Suppressions.Suppressed(ctx, addresses)
	if err != nil {
		return not, fmt.Errorf("asking for suppressed addresses: %w", err)
	}
	not.suppressed = map[string]*Suppression{}
	for address, one := range found {
		not.suppressed[address] = &one
	}
	return not, nil
}

// pausedAll tells whether every recipient waits for a pause, and what to answer
// then.
func (not exceptions) pausedAll(addresses []string) (core.Result, bool) {
	var answer *core.Result
	for _, address := range addresses {
		one := not.paused[domainOf(address)]
		if one == nil {
			return core.Result{}, false
		}
		answer = one
	}
	if answer == nil {
		return core.Result{}, false
	}
	return *answer, true
}

// pausedUntilResumed is how long a mail waits for a domain that is paused until
// somebody resumes it, before it is looked at again.
const pausedUntilResumed = time.Minute

// paused knows the domains that are paused.
type paused struct {
	of Pauses

	mu      sync.Mutex
	asked   time.Time
	domains map[string]*core.Result
}

// now returns the answers of paused domains. While the queue doesn't tell, what
// is known stays in force. The map must not be changed.
func (p *paused) now(ctx context.Context) (map[string]*core.Result, error) {
	if p.of == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked.IsZero() && time.Since(p.asked) < pausesFresh {
		return p.domains, nil
	}
	pauses, err := p.of.Pauses(ctx)
	if err != nil && p.asked.IsZero() {
		return nil, fmt.Errorf("asking for paused domains: %w", err)
	}
	if err == nil {
		p.domains = map[string]*core.Result{}
		for _, one := range pauses {
			if one.Scope != core.PauseDomain {
				continue
			}
			wait := pausedUntilResumed
			if !one.Until.IsZero() {
				wait = min(max(time.Until(one.Until), pausesFresh), time.Hour)
			}
			p.domains[one.Name] = &core.Result{
				Outcome: core.Throttled, Err: fmt.Errorf("mails to %s are paused", one.Name), RetryAfter: wait, Throttles: one.PauseTarget,
			}
		}
	}
	p.asked = time.Now()
	return maps.Clone(p.domains), nil
}
