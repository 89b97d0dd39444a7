package model

import "hash/maphash"

// Result is what a search found.
type Result struct {
	// States is how many were visited, Depth the longest shortest way.
	States, Depth int
	// Complete: the search ended before MaxStates.
	Complete bool
	// Broken are the promises that were broken, and Trace the shortest way to
	// the first of them.
	Broken Violation
	Trace  []string
}

type search struct {
	machine
	seed   maphash.Seed
	start  state
	index  map[uint64]int32
	parent []int32
	goals  []int32
	from   []int32
	to     []int32
}

// Search visits every state breadth first and checks each. It does not go on
// from a state that breaks a promise.
func Search(c Config) Result {
	if c.MaxStates <= 0 {
		c.MaxStates = 30_000_000
	}
	s := &search{machine: machine{Config: c}, seed: maphash.MakeSeed(), index: map[uint64]int32{}}
	for _, k := range c.Keys {
		s.keys = append(s.keys, uint8(k-'A'))
	}
	s.start.left = c.Faults
	return s.run()
}

func (q *search) run() Result {
	var res Result
	q.add(&q.start, -1)
	level, numbers := []state{q.start}, []int32{0}
	for len(level) > 0 && len(q.parent) < q.MaxStates {
		var next []state
		var nextNumbers []int32
		for i, s := range level {
			q.emit = func(n state, st step) {
				if v := q.check(&n); v != 0 {
					if res.Broken == 0 {
						res.Trace = append(q.trace(numbers[i]), st.String())
					}
					res.Broken |= v
					return
				}
				number, fresh := q.add(&n, numbers[i])
				q.from = append(q.from, numbers[i])
				q.to = append(q.to, number)
				if fresh {
					next = append(next, n)
					nextNumbers = append(nextNumbers, number)
				}
			}
			q.successors(s)
		}
		level, numbers = next, nextNumbers
		res.Depth++
	}
	res.States, res.Complete = len(q.parent), len(level) == 0
	if stuck := q.stuck(); res.Complete && stuck >= 0 {
		if res.Broken == 0 {
			res.Trace = q.trace(stuck)
		}
		res.Broken |= Stuck
	}
	return res
}

func (q *search) hash(s *state) uint64 { return maphash.Comparable(q.seed, *s) }

func (q *search) add(s *state, parent int32) (number int32, fresh bool) {
	h := q.hash(s)
	if i, ok := q.index[h]; ok {
		return i, false
	}
	i := int32(len(q.parent))
	q.index[h] = i
	q.parent = append(q.parent, parent)
	if q.done(s) {
		q.goals = append(q.goals, i)
	}
	return i, true
}

func (q *search) check(s *state) Violation {
	v := s.broken
	for e := range int(s.pos) {
		if s.arrived>>e&1 == 0 && s.jobs[e].state == jobNone {
			v |= PositionPassedUnsettled
		}
	}
	return v
}

// done tells that everything was delivered, or failed, or waits behind what
// failed on a held key.
func (q *search) done(s *state) bool {
	var held [2]bool
	for e, k := range q.keys {
		switch j := s.jobs[e].state; {
		case j == jobFailed:
			held[k] = held[k] || q.Hold
		case j == jobReady && held[k]:
		case j == jobReady || j == jobActive || s.arrived>>e&1 == 0:
			return false
		}
	}
	return int(s.pos) == len(q.keys)
}

// stuck returns a state from which none of the goals can be reached, or -1.
func (q *search) stuck() int32 {
	back := make([][]int32, len(q.parent))
	for i, to := range q.to {
		back[to] = append(back[to], q.from[i])
	}
	reach := make([]bool, len(q.parent))
	todo := append([]int32(nil), q.goals...)
	for _, g := range todo {
		reach[g] = true
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range back[n] {
			if !reach[p] {
				reach[p] = true
				todo = append(todo, p)
			}
		}
	}
	for i, ok := range reach {
		if !ok {
			return int32(i)
		}
	}
	return -1
}

// trace names the steps of the shortest way to a state.
func (q *search) trace(number int32) []string {
	var path []int32
	for n := number; n > 0; n = q.parent[n] {
		path = append(path, n)
	}
	var names []string
	s := q.start
	emit := q.emit
	defer func() { q.emit = emit }()
	for i := len(path) - 1; i >= 0; i-- {
		from, found := s, false
		q.emit = func(n state, st step) {
			if number, ok := q.index[q.hash(&n)]; ok && !found && number == path[i] {
				s, found = n, true
				names = append(names, st.String())
			}
		}
		q.successors(from)
	}
	return names
}
