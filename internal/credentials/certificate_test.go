package credentials

import (
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

var certificate = Wanted{Secret: "tls", Certificate: &Certificate{DNSNames: []string{"edge.hapsnap.svc"}}}

// A moment is what a Secret held from some time on.
type moment struct {
	at   time.Time
	data map[string][]byte
	why  string
}

// step makes one decision about a Secret of ours, and returns the Secret.
func step(t *testing.T, w Wanted, s *corev1.Secret, now time.Time, trusted bool) (*corev1.Secret, decision) {
	t.Helper()
	d, err := w.decide(s, now, trusted)
	if err != nil {
		t.Fatal(err)
	}
	if d.data != nil {
		s = filled(s, d)
	}
	return s, d
}

// live goes through a span of time in steps, and returns what the Secret held.
func live(t *testing.T, w Wanted, s *corev1.Secret, from time.Time, span, by time.Duration) (*corev1.Secret, []moment) {
	t.Helper()
	var out []moment
	for now := from; now.Before(from.Add(span)); now = now.Add(by) {
		next, d := step(t, w, s, now, true)
		if d.problem != nil {
			t.Fatalf("at %v: %v", now, d.problem)
		}
		if d.data != nil {
			out = append(out, moment{now, next.Data, d.why})
		}
		s = next
	}
	return s, out
}

// accepts returns why a client does not accept a server, or nil.
func accepts(client, server map[string][]byte, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(client[CAKey])
	leaf := parseAll(server[corev1.TLSCertKey])[0]
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "edge.hapsnap.svc", CurrentTime: now})
	return err
}

// Over two years, a program that learns of each change up to an hour late accepts programs that know it
// already, and is accepted by them.
func TestRenewalIsNeverSeen(t *testing.T) {
	t.Parallel()
	const late = propagation - time.Minute
	_, moments := live(t, certificate, &corev1.Secret{}, noon, 2*365*24*time.Hour, 20*time.Minute)
	if len(moments) < 20 {
		t.Fatalf("the Secret changed %d times", len(moments))
	}
	for i, m := range moments[1:] {
		before := moments[i]
		for _, now := range []time.Time{m.at, m.at.Add(late)} {
			for who, pair := range map[string][2]map[string][]byte{
				"client late": {before.data, m.data}, "server late": {m.data, before.data}, "nobody late": {m.data, m.data},
			} {
				if err := accepts(pair[0], pair[1], now); err != nil {
					t.Errorf("%s at %v (%s): %v", who, now, m.why, err)
				}
			}
		}
		if left := parseAll(before.data[corev1.TLSCertKey])[0].NotAfter.Sub(m.at); left < Lifetime/4 {
			t.Errorf("renewed %v before it expires", left)
		}
		if n := len(parseAll(m.data[CAKey])); n > 3 {
			t.Errorf("%d certificates are trusted", n)
		}
		if !before.at.Add(propagation).Before(m.at.Add(time.Second)) {
			t.Errorf("%v follows %v", m.at, before.at)
		}
	}
}

// A next certificate is not served as long as a verifying program does not have it.
func TestNothingIsServedThatIsNotTrusted(t *testing.T) {
	t.Parallel()
	s, _ := step(t, certificate, &corev1.Secret{}, noon, true)
	served := s.Data[corev1.TLSCertKey]
	now := noon.Add(Lifetime * 2 / 3)
	s, d := step(t, certificate, s, now, false)
	if d.data == nil || !slices.Equal(s.Data[corev1.TLSCertKey], served) {
		t.Fatalf("the next one: %+v", d)
	}
	for hours := range 100 {
		if _, d := step(t, certificate, s, now.Add(time.Duration(hours)*time.Hour), false); d.data != nil {
			t.Fatalf("after %d hours: %s", hours, d.why)
		}
	}
	if _, d := step(t, certificate, s, now.Add(propagation), true); d.data == nil {
		t.Error("once it is trusted it is not served")
	}
}

// After a clock that was wrong for a while, the certificate can be used again at the first look after the clock
// was corrected, and ca.crt does not grow.
func TestClocks(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{"a year ahead": 365 * 24 * time.Hour, "a year behind": -365 * 24 * time.Hour, "two hours behind": -2 * time.Hour, "two hours ahead": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := live(t, certificate, &corev1.Secret{}, noon, 24*time.Hour, time.Hour)
			for i := range 20 {
				now := noon.Add(time.Duration(i+1) * 24 * time.Hour)
				s, _ = live(t, certificate, s, now.Add(wrong), 3*time.Hour, time.Hour)
				s, _ = step(t, certificate, s, now, true)
				if err := accepts(s.Data, s.Data, now); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(parseAll(s.Data[CAKey])); n > mostTrusted {
				t.Errorf("%d certificates are trusted", n)
			}
		})
	}
}

// A Maker that did nothing for longer than a certificate lives gets a usable one at once.
func TestExpired(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{Lifetime, Lifetime + time.Hour, 3 * Lifetime} {
		s, _ := step(t, certificate, &corev1.Secret{}, noon, true)
		s, _ = step(t, certificate, s, noon.Add(after), true)
		if err := accepts(s.Data, s.Data, noon.Add(after)); err != nil {
			t.Error(err)
		}
		if n := len(parseAll(s.Data[CAKey])); n != 1 {
			t.Errorf("%d certificates are trusted", n)
		}
	}
}

// If a Secret is deleted and made again, servers with the former certificate are accepted for an hour. Nothing else is
// trusted, however often that happens.
func TestSecretMadeAgain(t *testing.T) {
	t.Parallel()
	var trusted []byte
	var former map[string][]byte
	for i := range 20 {
		now := noon.Add(time.Duration(i) * 5 * time.Minute)
		s, _ := step(t, certificate, &corev1.Secret{}, now, true)
		before := trusted
		trusted = Trusted(s.Data[CAKey], before, now)
		if again := Trusted(s.Data[CAKey], trusted, now); string(again) != string(trusted) {
			t.Error("it changes each time")
		}
		client := map[string][]byte{CAKey: trusted}
		if err := accepts(client, s.Data, now); err != nil {
			t.Error(err)
		}
		if former != nil {
			if err := accepts(client, former, now); err != nil {
				t.Errorf("the former certificate: %v", err)
			}
		}
		if n := len(parseAll(trusted)); n > mostTrusted {
			t.Errorf("%d certificates are trusted", n)
		}
		if later := Trusted(s.Data[CAKey], trusted, now.Add(propagation)); string(later) != string(s.Data[CAKey]) {
			t.Error("after an hour more than the authorities of the Secret is trusted")
		}
		former = s.Data
	}
}

// A certificate for another name than the clients' is replaced at once.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	other := Wanted{Secret: "tls", Certificate: &Certificate{DNSNames: []string{"other.svc"}}}
	s, _ := step(t, other, &corev1.Secret{}, noon, true)
	s, _ = step(t, certificate, s, noon, true)
	if err := accepts(s.Data, s.Data, noon); err != nil {
		t.Error(err)
	}
}

// What people wrote or edited is not changed. If it cannot be used, that is reported.
func TestWhatIsOthersStays(t *testing.T) {
	t.Parallel()
	password := Wanted{Secret: "user", Password: &Password{"username", "password"}}
	own, _ := step(t, certificate, &corev1.Secret{}, noon, true)
	user, _ := step(t, password, &corev1.Secret{}, noon, true)
	edited := func(s *corev1.Secret, key, value string) *corev1.Secret {
		s = s.DeepCopy()
		if s.Data[key] = []byte(value); value == "" {
			delete(s.Data, key)
		}
		return s
	}
	foreign := own.DeepCopy()
	foreign.Annotations = nil
	for name, c := range map[string]struct {
		w       Wanted
		s       *corev1.Secret
		at      time.Time
		problem string // "" for no problem
	}{
		"a password":                  {password, &corev1.Secret{Data: map[string][]byte{"username": []byte("me"), "password": []byte("mine")}}, noon, ""},
		"a password without a user":   {password, &corev1.Secret{Data: map[string][]byte{"password": []byte("mine")}}, noon, "no username"},
		"an edited password":          {password, edited(user, "password", "mine"), noon, ""},
		"a removed password":          {password, edited(user, "password", ""), noon, "no password"},
		"a certificate":               {certificate, foreign, noon, ""},
		"a certificate that expires":  {certificate, foreign, noon.Add(Lifetime - time.Hour), "expires at"},
		"a certificate that has":      {certificate, foreign, noon.Add(Lifetime), "expired at"},
		"a broken certificate":        {certificate, edited(own, corev1.TLSCertKey, "broken"), noon, "cannot be used"},
		"a broken key":                {certificate, edited(own, corev1.TLSPrivateKeyKey, "broken"), noon, "cannot be used"},
		"a certificate without ca":    {certificate, edited(own, CAKey, ""), noon, "no authority"},
		"something else":              {certificate, &corev1.Secret{Data: map[string][]byte{"other": []byte("thing")}}, noon, "there is none"},
		"something else, as password": {password, &corev1.Secret{Data: map[string][]byte{"other": []byte("thing")}}, noon, "no username"},
	} {
		c.s.Annotations = annotated(c.s.Annotations, RenewAnnotation, "now") // it has an effect only on ours
		_, d := step(t, c.w, c.s, c.at, true)
		if d.data != nil {
			t.Errorf("%s: %s", name, d.why)
		}
		if text := fmt.Sprint(d.problem); (c.problem == "") != (d.problem == nil) || !strings.Contains(text, c.problem) {
			t.Errorf("%s: %v, want %q", name, d.problem, c.problem)
		}
		if text := fmt.Sprint(d.problem); strings.Contains(text, "mine") || strings.Contains(text, "PRIVATE") {
			t.Errorf("%s: a secret is told: %s", name, text)
		}
	}
}

func annotated(m map[string]string, key, value string) map[string]string {
	out := map[string]string{key: value}
	maps.Copy(out, m)
	return out
}

// A password stays the same for years. When people ask for another one, servers learn it, beside the present
// one, an hour before clients use it.
func TestPasswordIsRenewedWhenAsked(t *testing.T) {
	t.Parallel()
	w := Wanted{Secret: "user", Password: &Password{"name", "pass"}}
	s, moments := live(t, w, &corev1.Secret{}, noon, 2*365*24*time.Hour, 24*time.Hour)
	if len(moments) != 1 || len(s.Data["pass"]) < 32 || len(s.Data["name"]) == 0 {
		t.Fatalf("the password changed %d times: %v", len(moments), s.Data)
	}
	first := s.Data
	s.ObjectMeta = metav1.ObjectMeta{Annotations: annotated(s.Annotations, RenewAnnotation, "")}
	now := noon.Add(1000 * 24 * time.Hour)
	s, moments = live(t, w, s, now, 3*time.Hour, 10*time.Minute)
	if len(moments) != 2 || moments[1].at.Sub(moments[0].at) < propagation {
		t.Fatalf("it changed at %v", moments)
	}
	if both := moments[0].data; string(both["pass"]) != string(first["pass"]) || string(both["next-pass"]) != string(s.Data["pass"]) || string(both["next-name"]) != string(s.Data["name"]) {
		t.Error("servers do not take both")
	}
	if _, still := s.Annotations[RenewAnnotation]; still || len(s.Data) != 2 || string(s.Data["pass"]) == string(first["pass"]) || string(s.Data["name"]) == string(first["name"]) {
		t.Errorf("in the end: %v %v", s.Annotations, s.Data)
	}
	// A clock that was a year ahead does not make the Maker wait for a year.
	s.Annotations[RenewAnnotation] = ""
	s, _ = live(t, w, s, now.Add(365*24*time.Hour), time.Minute, time.Minute)
	if s, moments = live(t, w, s, now, 3*time.Hour, 10*time.Minute); len(moments) != 2 || len(s.Data) != 2 {
		t.Errorf("with a clock that was ahead: %v", moments)
	}
}

// People can have a certificate renewed before its time. The steps are the same.
func TestCertificateIsRenewedWhenAsked(t *testing.T) {
	t.Parallel()
	s, _ := step(t, certificate, &corev1.Secret{}, noon, true)
	s.Annotations[RenewAnnotation] = "compromised"
	s, moments := live(t, certificate, s, noon.Add(time.Hour), 3*24*time.Hour, 10*time.Minute)
	if _, still := s.Annotations[RenewAnnotation]; still || len(moments) != 2 || moments[1].at.Sub(moments[0].at) < propagation {
		t.Errorf("it changed at %v, %v", moments, s.Annotations)
	}
}
