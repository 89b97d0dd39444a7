// Package dedupe gives a consumer the effect of each event once, however often
// the event is delivered.
//
// Marking an event as seen first and having its effect afterwards, in two
// steps, is the common mistake: a crash in between loses the effect, because the
// next delivery is taken for a repeat. The other way round, the crash repeats it.
// A Guard has two ways out, by where the effect is:
//
//   - in the same MongoDB: Once inserts the mark and runs the effect in one
//     transaction. Both happen or neither does; no crash loses or repeats it.
//     OnceBatch does so for many events, and IfNewer for those of which only
//     the newest version counts;
//   - anywhere else: Reserve takes a reservation, runs the effect, and marks it
//     as done. Of two consumers one runs, the other is told to come back. After a
//     crash between effect and mark nobody can know whether the effect took
//     place: by policy it is tried again, or reported as unknown.
//
// Marks are scoped by the consumer's name: two consumers of one event each have
// their effect. They are kept for Config.Retention, which must be longer than any
// delivery can come after the first one; docs/consumer.md has the rule.
package dedupe
