// Package crash lets a test kill the process at a named place, to show what a
// restart makes of the state that is left behind. Built without the tag
// crashpoints, as every release is, Here does nothing and costs nothing.
package crash
