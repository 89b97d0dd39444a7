package mail

import "sync"

// maxUnsure bounds what is remembered; above it all is forgotten, which makes
// some mails that were not sent of unknown outcome.
const maxUnsure = 10_000

// unsure are the tokens of reservations that may have been written although the
// ledger answered an error. Nothing was sent under them, so that the next attempt
// of this process may go on under the same.
type unsure struct {
	mu     sync.Mutex
	tokens map[string]string
}

// token is that of an earlier attempt at the job that sent nothing, or a new one.
func (u *unsure) token(jobID string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if token, ok := u.tokens[jobID]; ok {
		delete(u.tokens, jobID)
		return token
	}
	return newToken()
}

func (u *unsure) keep(jobID, token string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.tokens) >= maxUnsure {
		clear(u.tokens)
	}
	u.tokens[jobID] = token
}
