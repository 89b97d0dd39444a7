package mail

import (
	"errors"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits of addresses (RFC 5321 section 4.5.3.1), in bytes.
const (
	maxLocalBytes   = 64
	maxAddressBytes = 254
	maxNameBytes    = 256
)

// domains converts domains to their ASCII form, and refuses what no host can be
// called.
var domains = idna.New(
	idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(true),
	idna.VerifyDNSLength(true), idna.BidiRule(),
)

// parseAddress reads one address strictly. The address that it returns has its
// domain in ASCII form. Errors don't hold the address.
func parseAddress(s string) (*mail.Address, error) {
	if problem := controlIn(s, ""); problem != "" {
		return nil, errors.New(problem)
	}
	found, err := mail.ParseAddress(s)
	if err != nil {
		return nil, errors.New("is no address such as ada@example.org or Ada <ada@example.org>")
	}
	if bare := strings.TrimSpace(s); bare != found.Address && !strings.HasSuffix(bare, ">") {
		return nil, errors.New("is a group, or has a comment or quotes: write ada@example.org or Ada <ada@example.org>")
	}
	at := strings.LastIndexByte(found.Address, '@')
	local, domain := found.Address[:at], found.Address[at+1:]
	switch {
	case len(local) > maxLocalBytes:
		return nil, errors.New("has more than 64 bytes before its @")
	case !isDotAtom(local):
		return nil, errors.New("has a local part that needs quotes, which many servers deliver elsewhere")
	case controlIn(found.Name, "") != "":
		return nil, errors.New("has a name with a control character")
	case len(found.Name) > maxNameBytes:
		return nil, errors.New("has a name of more than 256 bytes")
	}
	ascii, err := domains.ToASCII(domain)
	if err != nil {
		return nil, errors.New("has a domain that no host can have")
	}
	if !strings.Contains(ascii, ".") && ascii != "localhost" {
		return nil, errors.New("has a domain without a dot")
	}
	found.Address = local + "@" + strings.ToLower(ascii)
	if len(found.Address) > maxAddressBytes {
		return nil, errors.New("has more than 254 bytes")
	}
	return found, nil
}

// isDotAtom follows RFC 5322 section 3.2.3 and RFC 6531 section 3.3.
func isDotAtom(s string) bool {
	if s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for _, r := range s {
		switch {
		case r >= utf8.RuneSelf:
			if !unicode.IsGraphic(r) || unicode.IsSpace(r) {
				return false
			}
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case strings.ContainsRune("!#$%&'*+-/=?^_`{|}~.", r):
		default:
			return false
		}
	}
	return true
}

// domainOf is the part behind the @.
func domainOf(address string) string {
	return address[strings.LastIndexByte(address, '@')+1:]
}

// isASCII tells whether s holds bytes below 0x80 only.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// controlIn says what is wrong with s where it isn't UTF-8 or holds a control
// character other than the allowed ones; "" if nothing is.
func controlIn(s, allowed string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return isControl(r) && !strings.ContainsRune(allowed, r) }) {
		return "contains a control character"
	}
	return ""
}

// isControl counts the separators of lines and paragraphs among the controls: some
// programs break lines at them.
func isControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}
