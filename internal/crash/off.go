//go:build !crashpoints

package crash

// Here marks a place at which a test may want the process to die. It does
// nothing without the build tag crashpoints.
func Here(string) {}
