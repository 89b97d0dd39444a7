// Package model searches every state of the protocol by which a cursor delivers
// and parks events (DESIGN: log, failure and parking), for two relays and a few
// events of one or two keys, with refusals, lost answers, crashes, freezes and
// leases that end early.
//
// It checks that nothing is lost, that the events of a key arrive in order
// after dropping repeated ids, that the position never passes an event that is
// neither delivered nor durably a job, that no two jobs of a key are lent at
// once, and that full delivery can still be reached from every state.
//
// Rules holds the rules of the protocol, all kept by default. Dropping one
// must give a counterexample; the tests show that each does.
package model
