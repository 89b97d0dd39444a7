package mail

import "crypto/rand"

// absent is what null in a template's data becomes: false for if and empty for
// range, while to print it is an error that render finds by absentMark.
type absent []struct{}

// absentMark can't be in anybody's data.
var absentMark = "absent-" + rand.Text()

// String is what a template prints.
func (absent) String() string { return absentMark }
