// Package certinfo returns what the storage of the Dataplane API (3.2.5 and 3.4 were asked) reports about a
// certificate file, for the doubles of the API.
package certinfo

import (
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"
)

// Info has data of all certificates in a file, and of the one that counts as the leaf.
type Info struct {
	// NotBefore and NotAfter are the latest and the earliest of all, zero where there is none.
	NotBefore, NotAfter         time.Time
	Issuers, Domains, Addresses string // of all that are no authority
	Serial, Subject             string // of the leaf, "" where none is found
}

// Of returns the data of a file, or an error if one of its certificates cannot be read.
func Of(content []byte) (Info, error) {
	var info Info
	var all []*x509.Certificate
	issuers, domains, addresses := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return Info{}, err
		}
		all = append(all, c)
		if info.NotAfter.IsZero() || c.NotAfter.Before(info.NotAfter) {
			info.NotAfter = c.NotAfter
		}
		if c.NotBefore.After(info.NotBefore) {
			info.NotBefore = c.NotBefore
		}
		issuers[c.Issuer.CommonName] = true
		if c.IsCA {
			continue
		}
		for _, name := range append(slices.Clone(c.DNSNames), c.Subject.CommonName) {
			domains[name] = true
		}
		for _, ip := range c.IPAddresses {
			addresses[ip.String()] = true
		}
	}
	joined := func(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }
	info.Issuers, info.Domains, info.Addresses = joined(issuers), joined(domains), joined(addresses)
	if c := leafOf(all); c != nil {
		info.Serial, info.Subject = c.SerialNumber.String(), c.Subject.CommonName
	}
	return info, nil
}

// leafOf returns the only certificate. Of several it returns the first that is not an authority, has a common
// name, and issued none of them, or nil if there is none.
func leafOf(all []*x509.Certificate) *x509.Certificate {
	if len(all) == 1 {
		return all[0]
	}
	for _, c := range all {
		issued := slices.ContainsFunc(all, func(o *x509.Certificate) bool { return o.Issuer.String() == c.Subject.String() })
		if !c.IsCA && c.Subject.CommonName != "" && !issued {
			return c
		}
	}
	return nil
}
