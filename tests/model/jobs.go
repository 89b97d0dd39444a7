package model

// deliverJob: a claimed job goes on, whatever became of the cursor.
func (m *machine) deliverJob(s state, r int) {
	l := &s.relays[r]
	if l.claimed == 0 {
		return
	}
	e := int(l.claimed - 1)
	if l.answer != noAnswer {
		m.settle(s, r, e)
		return
	}
	for _, o := range outcomes {
		n := s
		if !spend(&n.left, o.budget) {
			continue
		}
		if o.came {
			m.arrive(&n, e, s.jobs[e].token != l.token)
		}
		n.relays[r].answer = o.answer
		if o.answer == acceptedButLost {
			n.relays[r].answer = refused
		}
		m.emit(n, step{"job sends", r, e, o.answer})
	}
}

func (m *machine) settle(s state, r, e int) {
	l := &s.relays[r]
	n := s
	j := &n.jobs[e]
	st := step{"settles job", r, e, l.answer}
	if j.state == jobActive && j.token == l.token || !m.Rules.FencedSettle {
		switch l.answer {
		case accepted:
			j.state = jobCompleted
		case refused:
			j.attempts++
			j.state = jobReady
			if j.attempts >= maxAttempts {
				j.state = jobFailed
			}
		case rejected:
			j.state = jobFailed
		}
		j.holder, j.leased = 0, false
	} else {
		st.name = "is fenced off settling job"
	}
	t := &n.relays[r]
	t.claimed, t.token, t.answer = 0, 0, noAnswer
	m.emit(n, st)
}

// head is the job of key k that may be claimed, or -1.
func (m *machine) head(s *state, k uint8) int {
	for e := range m.keys {
		if m.Rules.LeaseBlocks && m.keys[e] == k && s.jobs[e].state == jobActive && s.jobs[e].leased {
			return -1
		}
	}
	for e := range m.keys {
		if m.keys[e] != k {
			continue
		}
		j := s.jobs[e]
		switch {
		case j.state == jobReady, j.state == jobActive && !j.leased:
			return e
		case j.state == jobFailed && m.Hold:
			return -1
		}
	}
	return -1
}

// claim finds the head of a parked key, and in a second step claims it.
func (m *machine) claim(s state, r int) {
	l := &s.relays[r]
	if l.candidate == 0 && l.claimed == 0 {
		for k := range uint8(2) {
			if l.parkedKeys>>k&1 == 0 {
				continue
			}
			if h := m.head(&s, k); h >= 0 {
				n := s
				n.relays[r].candidate = uint8(h + 1)
				m.emit(n, step{"finds head", r, h, 0})
			}
		}
	}
	if l.candidate == 0 {
		return
	}
	e := int(l.candidate - 1)
	n := s
	n.relays[r].candidate = 0
	j := &n.jobs[e]
	if j.state != jobReady && (j.state != jobActive || j.leased) {
		m.emit(n, step{"is too late to claim", r, e, 0})
		return
	}
	for f := range m.keys {
		if f != e && m.keys[f] == m.keys[e] && s.jobs[f].state == jobActive && s.jobs[f].leased {
			n.broken |= KeyLentTwice
		}
	}
	for q := range relays {
		other := &s.relays[q]
		if other.claimed == uint8(e+1) && other.token == j.token && j.state == jobReady && other.answer == noAnswer {
			n.broken |= JobClaimedTwice
		}
	}
	j.state, j.holder, j.leased = jobActive, uint8(r+1), true
	j.token++
	t := &n.relays[r]
	t.claimed, t.token, t.answer = uint8(e+1), j.token, noAnswer
	m.emit(n, step{"claims job", r, e, 0})
}

// release lets a key be sent directly again once none of its jobs is open.
func (m *machine) release(s state, r int) {
	l := &s.relays[r]
	for k := range uint8(2) {
		if l.parkedKeys>>k&1 == 0 {
			continue
		}
		empty := true
		for e := range m.keys {
			if m.keys[e] != k {
				continue
			}
			j := s.jobs[e].state
			open := j == jobReady || j == jobActive || m.Hold && j == jobFailed
			pending := e >= int(l.pos) && (l.events[e] == toPark || l.events[e] == toFail)
			if open || pending && m.Rules.ReleaseInOneStep || pending && l.emptySeen>>k&1 == 0 {
				empty = false
			}
		}
		n := s
		t := &n.relays[r]
		switch {
		case m.Rules.ReleaseInOneStep && empty:
			t.parkedKeys &^= 1 << k
			m.emit(n, step{"releases its key", r, -1, 0})
		case !m.Rules.ReleaseInOneStep && l.emptySeen>>k&1 == 1:
			t.emptySeen &^= 1 << k
			t.parkedKeys &^= 1 << k
			m.emit(n, step{"releases the key it found empty", r, -1, 0})
		case !m.Rules.ReleaseInOneStep && empty:
			t.emptySeen |= 1 << k
			m.emit(n, step{"finds a key empty", r, -1, 0})
		}
	}
}
