package snapshots

import (
	"errors"
	"slices"
)

var errExpired = errors.New("the certificate is expired")

// expiredFiles says what becomes of the expired certificates that a crt-list
// serves, by file. True: the fallback certificate takes the place of the file,
// which needs no reload. False: a host of it has another certificate that is
// valid, which a fallback beside it could take clients from, so that the file's
// lines are left out. Those that no crt-list names are not served, and stay.
func expiredFiles(refs []CertificateRef, lists []File, live Live) map[string]bool {
	if len(live.Expired)+len(live.ExpiredVersions) == 0 {
		return nil
	}
	expired, valid := map[string]bool{}, map[string]bool{}
	for _, ref := range refs {
		if _, err := certificateKind(live.certificate(ref)); err == nil && ref.Use == UseCertificate {
			expired[ref.File], valid[ref.File] = live.expired(ref), !live.expired(ref)
		}
	}
	out := map[string]bool{}
	for _, list := range lists {
		served := hostsOf(list.Content, func(file, _ []byte) bool { return valid[string(file)] })
		for _, line := range numberedLines(list.Content) {
			file, rest := cutListLine(line)
			if !expired[string(file)] {
				continue
			}
			alone, known := out[string(file)]
			shared := slices.ContainsFunc(hostsOn(rest), func(host string) bool { return served[host] })
			out[string(file)] = (alone || !known) && !shared
		}
	}
	return out
}
