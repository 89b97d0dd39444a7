// Package archtest holds tests of the shape of the tree: which package may link
// what, and how long a file may be.
package archtest
