package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Stats counts jobs and tells how the cursors stand, see core.Admin. How many
// events a cursor settled is not counted here.
func (s *Store) Stats(ctx context.Context) (core.Stats, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpAdmin)); err != nil {
		return core.Stats{}, fmt.Errorf("counting: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	stats := core.Stats{At: now, Pauses: s.pauses()}
	sinks := map[string]*core.SinkStats{}
	for _, j := range s.queue.jobs {
		sink := sinks[j.Sink]
		if sink == nil {
			sink = &core.SinkStats{Sink: j.Sink}
			sinks[j.Sink] = sink
		}
		j.count(&stats, sink, now)
	}
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		stats.Sinks = append(stats.Sinks, *sinks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.cursors)) {
		stats.Cursors = append(stats.Cursors, s.cursorInfo(s.cursors[name], now))
	}
	return stats, nil
}

// count adds the job to what it belongs to.
func (j *job) count(stats *core.Stats, sink *core.SinkStats, now time.Time) {
	switch {
	case j.due(now):
		since := j.waitsSince()
		stats.Ready++
		sink.Ready++
		stats.OldestReady = max(stats.OldestReady, now.Sub(since))
		sink.OldestReady = max(sink.OldestReady, now.Sub(since))
	case j.state == core.JobReady:
		stats.Delayed++
		sink.Delayed++
	case j.state == core.JobActive:
		stats.Active++
		sink.Active++
	case j.state == core.JobCompleted:
		stats.Completed++
	case j.state == core.JobFailed:
		stats.Failed++
		sink.Failed++
	case j.state == core.JobUnknown:
		stats.Unknown++
		sink.Unknown++
	}
}

// cursorInfo tells how a cursor stands. The caller holds mu.
func (s *Store) cursorInfo(c *cursorState, now time.Time) core.CursorInfo {
	info := core.CursorInfo{
		Name: c.name, Owner: c.owner, Fence: c.fence, Held: now.Before(c.leaseUntil), Position: c.position,
	}
	for _, d := range s.log {
		if d.pos.Compare(c.after()) <= 0 || c.skips(d) {
			continue
		}
		info.Lag.Events++
		info.Lag.Age = max(info.Lag.Age, now.Sub(d.writtenAt))
		info.LagBytes += int64(d.event.Size())
	}
	for _, j := range s.queue.jobs {
		switch {
		case j.cursor != c.name:
		case !j.state.Final():
			info.Parked++
		case j.state == core.JobFailed:
			info.Failed++
		}
	}
	return info
}
