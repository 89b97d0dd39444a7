package relay

import "time"

// WorkerStatus is what one worker is doing.
type WorkerStatus struct {
	// Sink whose jobs it delivers.
	Sink string
	// Calls to the sink that are under way, and InFlight the jobs in them.
	Calls, InFlight int
	// Ahead counts jobs that were claimed and are not begun.
	Ahead int
	// Paused is why the sink is paused, empty while it isn't; PausedUntil is when
	// that ends by the store's clock, zero if somebody must resume it.
	Paused      string
	PausedUntil time.Time
	// SinkError is why the sink takes nothing at present, empty while it works;
	// SinkSince is when that began and RetryAt when it is tried next.
	SinkError          string
	SinkSince, RetryAt time.Time
	// StoreError is what the store of the jobs answers at present, empty while it
	// works, and StoreSince when that began. All workers share it.
	StoreError string
	StoreSince time.Time
}

func (w *worker) status() WorkerStatus {
	s := WorkerStatus{Sink: w.cfg.Sink}
	s.SinkError, s.SinkSince = w.outage.now()
	s.StoreError, s.StoreSince = w.relay.jobStore.now()
	s.Paused, s.PausedUntil = w.relay.pauses.status(w.cfg.Sink)
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Calls, s.InFlight, s.Ahead = w.calls, w.inFlight, len(w.hand.jobs)
	if w.gate.until.After(time.Now()) {
		s.RetryAt = w.gate.until
	}
	return s
}
