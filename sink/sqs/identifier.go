package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// hashPrefix begins the identifiers that stand for a text that SQS doesn't take.
const hashPrefix = "sha256:"

// identifier makes a message group id or deduplication id of any text. What SQS
// takes stays as it is: 1 to 128 letters, digits and punctuation of ASCII. The
// rest becomes the SHA-256 of the text behind a prefix; so does a text that has
// that prefix itself, so that two texts never have one identifier.
func identifier(text string) string {
	if text != "" && len(text) <= maxIdentifier && !strings.HasPrefix(text, hashPrefix) && isGraphic(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// isGraphic tells whether all bytes are letters, digits or punctuation of ASCII.
func isGraphic(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// isAttributeName follows SQS's rules for the names of attributes.
func isAttributeName(name string) bool {
	if name == "" || len(name) > maxAttributeName || name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, "..") {
		return false
	}
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return false
		}
	}
	return true
}
