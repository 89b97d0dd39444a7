package relay

// A pause of a sink stops its routes too, fleet-wide: no call begins, neither
// with events nor with parked jobs, while the cursor's lease, its position and
// what is parked go on. Calls that are under way may end. The pause's end lets
// the calls begin again; both are seen within a second.

// pausesChanged is called when others are in force than before.
func (rt *route) pausesChanged() {
	rt.mu.Lock()
	t := rt.term
	rt.mu.Unlock()
	if t != nil {
		t.obeyPause()
	}
}

// obeyPause stops the term's calls while its sink is paused.
func (t *term) obeyPause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, paused := t.route.relay.pauses.sink(t.route.cfg.Sink)
	if paused == t.paused || t.over {
		return
	}
	t.paused = paused
	if paused {
		attrs := []any{"reason", one.Reason}
		if one.By != "" {
			attrs = append(attrs, "by", one.By)
		}
		if !one.Until.IsZero() {
			attrs = append(attrs, "until", one.Until)
		}
		t.route.log.Warn("the sink is paused: the route waits", attrs...)
		return
	}
	t.route.log.Info("the sink is no longer paused: the route goes on")
	t.work.Broadcast()
}
