// Package smtp is a mail.Transport over SMTP (RFC 5321), by STARTTLS or TLS, with
// connections that are used again.
//
// How far a mail had come when something failed decides what is known of it. The
// mail is the server's once it answered the final dot, and not before that dot
// was written; only in between it is unknown:
//
//	phase                         lost connection, end of ctx   4yz                5yz
//	connecting, TLS, EHLO, AUTH   unavailable                   unavailable, whatever the code
//	MAIL                          unavailable                   refused            rejected
//	RCPT                          unavailable                   refused (*)        rejected (*)
//	DATA, and writing the mail    unavailable                   refused            rejected
//	after the final dot           unknown                       refused            rejected
//
// (*) for that recipient; the others go on. 421, 530, 534, 535 and 538 are
// unavailable anywhere; a 4yz that speaks of greylisting is refused with the time
// to wait, and one that speaks of rates is throttled: the recipient's domain where
// it answers RCPT, else the sink. When ctx has ended before anything was sent the
// answer is not attempted.
//
// That the dot was not written is exact: it stands in the last bytes that are
// handed to the operating system, and an error of that write means that not all
// of them were.
//
// A connection that was idle may have been closed by the server. Where one that
// is used again fails at MAIL, the first command of a mail, a new one is opened
// at once, since the server has nothing of the mail then. Nothing else is tried
// twice.
package smtp
