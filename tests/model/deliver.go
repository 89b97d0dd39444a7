package model

// outcome is one way in which a direct delivery can end.
type outcome struct {
	then   seen
	budget func(*Faults) *uint8
	came   bool
	answer answer
}

var outcomes = []outcome{
	{delivered, nil, true, accepted},
	{toPark, func(f *Faults) *uint8 { return &f.Refused }, false, refused},
	{toFail, func(f *Faults) *uint8 { return &f.Rejected }, false, rejected},
	{toPark, func(f *Faults) *uint8 { return &f.Lost }, true, acceptedButLost},
}

func spend(f *Faults, budget func(*Faults) *uint8) bool {
	if budget == nil {
		return true
	}
	left := budget(f)
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// deliver: the holder sends events, and parks what was refused.
func (m *machine) deliver(s state, r int) {
	l := &s.relays[r]
	for e := int(l.pos); e < len(m.keys); e++ {
		switch l.events[e] {
		case unseen:
			m.send(s, r, e)
		case toPark, toFail:
			m.park(s, r, e)
		}
	}
}

func (m *machine) send(s state, r, e int) {
	l := &s.relays[r]
	for f := int(l.pos); f < e; f++ {
		if m.keys[f] == m.keys[e] && (l.events[f] == unseen || l.events[f] == toFail) {
			return
		}
	}
	if l.parkedKeys>>m.keys[e]&1 == 1 && m.Rules.Followers {
		n := s
		n.relays[r].events[e] = toPark
		m.emit(n, step{"will park follower", r, e, 0})
		return
	}
	next := e + 1
	for next < len(m.keys) && m.keys[next] != m.keys[e] {
		next++
	}
	both := !m.Rules.OneOfAKey && next < len(m.keys) && l.events[next] == unseen
	for _, first := range outcomes {
		n, ok := m.answered(s, r, e, first)
		if !ok {
			continue
		}
		if !both {
			m.emit(n, step{"sends", r, e, first.answer})
			continue
		}
		for _, second := range outcomes {
			if n2, ok := m.answered(n, r, next, second); ok {
				m.emit(n2, step{"sends with its follower", r, e, first.answer})
			}
		}
	}
}

// answered is the state after event e was sent and answered so.
func (m *machine) answered(s state, r, e int, o outcome) (state, bool) {
	stale := !m.holds(&s, r)
	if !spend(&s.left, o.budget) {
		return s, false
	}
	if o.came {
		m.arrive(&s, e, stale)
	}
	l := &s.relays[r]
	l.events[e] = o.then
	if o.then == toPark || o.then == toFail && m.Hold {
		l.parkedKeys |= 1 << m.keys[e]
	}
	return s, true
}

// park makes a job of an event that was refused, or of its follower.
func (m *machine) park(s state, r, e int) {
	l := &s.relays[r]
	for f := int(l.pos); f < e && m.Rules.ParkInOrder; f++ {
		if m.keys[f] == m.keys[e] && (l.events[f] == toPark || l.events[f] == toFail) {
			return
		}
	}
	n := s
	if m.Rules.FencedPark && !m.holds(&s, r) {
		forget(&n.relays[r])
		m.emit(n, step{"is fenced off parking", r, e, 0})
		return
	}
	st := step{"parks", r, e, 0}
	if l.events[e] == toFail {
		st.name = "records the failure of"
	}
	if n.jobs[e].state == jobNone {
		n.jobs[e].state, n.jobs[e].attempts = jobReady, 1
		if l.events[e] == toFail {
			n.jobs[e].state = jobFailed
		}
	}
	n.relays[r].events[e] = queued
	m.emit(n, st)
}

// save stores the position.
func (m *machine) save(s state, r int) {
	l := &s.relays[r]
	settled := func(e int) bool {
		return l.events[e] == delivered || l.events[e] == queued || !m.Rules.ParkBeforeSave && l.events[e] == toPark
	}
	p := int(l.pos)
	if m.Rules.SavePrefix {
		for p < len(m.keys) && settled(p) {
			p++
		}
	} else {
		for e := len(m.keys); e > int(l.pos); e-- {
			if settled(e - 1) {
				p = e
				break
			}
		}
	}
	if p == int(l.pos) || p == int(s.pos) {
		return
	}
	n := s
	st := step{"saves its position", r, -1, 0}
	if m.holds(&s, r) {
		n.pos = uint8(p)
	} else {
		forget(&n.relays[r])
		st.name = "is fenced off saving"
	}
	m.emit(n, st)
}
