package model

// machine makes the successors of a state.
type machine struct {
	Config
	keys []uint8
	emit func(state, step)
}

func (m *machine) holds(s *state, r int) bool {
	l := &s.relays[r]
	return l.phase != standby && s.owner == uint8(r+1) && s.fence == l.fence
}

// arrive delivers event e; stale tells that the sender had lost its lease.
func (m *machine) arrive(s *state, e int, stale bool) {
	if s.arrived>>e&1 == 0 {
		for f := e + 1; f < len(m.keys); f++ {
			late := m.keys[f] == m.keys[e] && s.arrived>>f&1 == 1
			if late && (m.Hold || !stale || s.jobs[e].state != jobFailed) {
				s.broken |= OrderBroken
			}
		}
	}
	if m.Hold && s.jobs[e].state != jobFailed {
		for f := range e {
			if m.keys[f] == m.keys[e] && s.jobs[f].state == jobFailed && s.arrived>>f&1 == 0 {
				s.broken |= HeldKeyPassed
			}
		}
	}
	s.arrived |= 1 << e
}

// forget drops what a relay knows of its term. A job that it claimed stays.
func forget(l *relay) {
	*l = relay{claimed: l.claimed, token: l.token, answer: l.answer}
}

// successors emits every state that can follow s.
func (m *machine) successors(s state) {
	for r := range relays {
		m.environment(s, r)
		l := &s.relays[r]
		if l.frozen {
			continue
		}
		if l.phase != standby && !m.holds(&s, r) {
			n := s
			forget(&n.relays[r])
			m.emit(n, step{"notices its lost lease", r, -1, 0})
		}
		m.term(s, r)
		m.deliverJob(s, r)
		if l.phase == running {
			m.deliver(s, r)
			m.save(s, r)
			m.claim(s, r)
			m.release(s, r)
		}
	}
}

// environment: freezes, crashes, and leases that end.
func (m *machine) environment(s state, r int) {
	l := s.relays[r]
	busy := l.phase != standby || l.claimed > 0
	if l.frozen {
		n := s
		n.relays[r].frozen = false
		m.emit(n, step{"wakes", r, -1, 0})
		n = s
		n.relays[r] = relay{}
		m.emit(n, step{"dies frozen", r, -1, 0})
	}
	if s.left.Crashes > 0 && !l.frozen && busy {
		n := s
		n.left.Crashes--
		n.relays[r] = relay{}
		m.emit(n, step{"crashes", r, -1, 0})
	}
	if s.left.Freezes > 0 && !l.frozen && busy {
		n := s
		n.left.Freezes--
		n.relays[r].frozen = true
		m.emit(n, step{"freezes", r, -1, 0})
	}
	if s.leased && s.owner == uint8(r+1) {
		n := s
		n.leased = false
		m.leaseEnds(n, l.frozen || !m.holds(&s, r), step{"cursor lease ends", r, -1, 0})
	}
	for e := range m.keys {
		j := s.jobs[e]
		if j.state != jobActive || !j.leased || j.holder != uint8(r+1) {
			continue
		}
		n := s
		n.jobs[e].leased = false
		m.leaseEnds(n, l.frozen || l.claimed != uint8(e+1) || l.token != j.token, step{"job lease ends", r, e, 0})
	}
}

// leaseEnds emits the end of a lease that nobody renews, or an early one.
func (m *machine) leaseEnds(n state, unattended bool, st step) {
	if !unattended {
		if n.left.EarlyEnds == 0 {
			return
		}
		n.left.EarlyEnds--
		st.name += " early"
	}
	m.emit(n, st)
}

// term: take over, and load what is parked.
func (m *machine) term(s state, r int) {
	l := &s.relays[r]
	if l.phase == standby && !s.leased {
		n := s
		n.owner, n.leased = uint8(r+1), true
		n.fence++
		t := &n.relays[r]
		t.phase, t.fence, t.pos = loading, n.fence, n.pos
		if m.Rules.LoadAfterFence {
			t.parkedKeys = 0
			t.events = [maxEvents]seen{}
		} else {
			t.phase = running // what was loaded earlier is used
		}
		m.emit(n, step{"takes over", r, -1, 0})
	}
	if l.phase == standby && !m.Rules.LoadAfterFence {
		n := s
		n.relays[r].parkedKeys = 0
		n.relays[r].events = [maxEvents]seen{}
		m.load(&n, r)
		if n != s {
			m.emit(n, step{"loads jobs early", r, -1, 0})
		}
	}
	if l.phase == loading {
		n := s
		n.relays[r].phase = running
		m.load(&n, r)
		m.emit(n, step{"loads jobs", r, -1, 0})
	}
}

func (m *machine) load(s *state, r int) {
	l := &s.relays[r]
	for e := range m.keys {
		j := s.jobs[e].state
		open := j == jobReady || j == jobActive && m.Rules.LoadLeased || m.Hold && j == jobFailed
		if m.Rules.LoadJobs && open {
			l.parkedKeys |= 1 << m.keys[e]
		}
		if e < int(l.pos) {
			continue
		}
		if m.Rules.Known && j != jobNone {
			l.events[e] = queued
		}
		for f := e + 1; m.Rules.KnownBelow && f < len(m.keys); f++ {
			if m.keys[f] == m.keys[e] && s.jobs[f].state != jobNone {
				l.events[e] = queued
			}
		}
	}
}
