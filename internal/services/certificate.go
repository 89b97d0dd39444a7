package services

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// writeCertificates makes a certificate authority and writes its certificate
// (ca.pem), a server's key and certificate from it (server.pem), and those of a
// client whose common name is User (client.pem).
func writeCertificates(dir *folder) error {
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "outbox test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	client := &x509.Certificate{
		SerialNumber: big.NewInt(3),
		Subject:      pkix.Name{CommonName: User},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the authority's key: %w", err)
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return fmt.Errorf("making the authority's certificate: %w", err)
	}
	if err := writePEM(dir.file("ca.pem"), pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}); err != nil {
		return err
	}
	for name, holder := range map[string]*x509.Certificate{"server": server, "client": client} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return fmt.Errorf("making the %s's key: %w", name, err)
		}
		der, err := x509.CreateCertificate(rand.Reader, holder, authority, key.Public(), authorityKey)
		if err != nil {
			return fmt.Errorf("making the %s's certificate: %w", name, err)
		}
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return fmt.Errorf("encoding the %s's key: %w", name, err)
		}
		if err := writePEM(dir.file(name+".pem"),
			pem.Block{Type: "PRIVATE KEY", Bytes: keyDER},
			pem.Block{Type: "CERTIFICATE", Bytes: der},
			pem.Block{Type: "CERTIFICATE", Bytes: authorityDER},
		); err != nil {
			return err
		}
	}
	return nil
}

func writePEM(path string, blocks ...pem.Block) error {
	var text []byte
	for _, block := range blocks {
		text = append(text, pem.EncodeToMemory(&block)...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	return nil
}
