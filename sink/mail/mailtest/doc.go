// Package mailtest is the suite that any mail.Ledger and mail.SuppressionList
// must pass. It takes seconds, most of them to let two workers race.
package mailtest
