package dataplanetest

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"path/filepath"
	"strings"
	"time"
)

var (
	errNoCertificate = errors.New("failed to parse certificate")
	errNoKey         = errors.New("file should contain both certificate and private key")
)

// checkPEM wants a certificate and a key of RSA or ECDSA in one file. That they
// belong together is not looked at.
func checkPEM(content []byte) error {
	if !x509.NewCertPool().AppendCertsFromPEM(content) {
		return errNoCertificate
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" && usableKey(block.Bytes) {
			return nil
		}
	}
	return errNoKey
}

func usableKey(der []byte) bool {
	if _, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return true
	}
	if _, err := x509.ParseECPrivateKey(der); err == nil {
		return true
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return false
	}
	switch key.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey:
		return true
	default:
		return false
	}
}

// fileInfo is what the API says of a stored file.
type fileInfo struct {
	Description string `json:"description,omitempty"`
	File        string `json:"file,omitempty"`
	StorageName string `json:"storage_name,omitempty"`
	Size        *int   `json:"size,omitempty"`

	Issuers     string     `json:"issuers,omitempty"`
	NotAfter    *time.Time `json:"not_after,omitempty"`
	NotBefore   *time.Time `json:"not_before,omitempty"`
	Serial      string     `json:"serial,omitempty"`
	Subject     string     `json:"subject,omitempty"`
	Domains     string     `json:"domains,omitempty"`
	IPAddresses string     `json:"ip_addresses,omitempty"`
}

// certInfo describes a certificate: never its content, and no hash of it.
func certInfo(path string, content []byte) (fileInfo, error) {
	info := fileInfo{Description: "managed SSL file", File: path, StorageName: filepath.Base(path)}
	size := len(content)
	info.Size = &size
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return info, errNoCertificate
		}
		info.Issuers, info.Subject = cert.Issuer.CommonName, cert.Subject.CommonName
		info.NotBefore, info.NotAfter = &cert.NotBefore, &cert.NotAfter
		info.Serial = cert.SerialNumber.String()
		info.Domains = strings.Join(cert.DNSNames, ", ")
		addresses := make([]string, 0, len(cert.IPAddresses))
		for _, ip := range cert.IPAddresses {
			addresses = append(addresses, ip.String())
		}
		info.IPAddresses = strings.Join(addresses, ", ")
		return info, nil
	}
	return info, errNoCertificate
}
