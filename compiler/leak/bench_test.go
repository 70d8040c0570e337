package leak_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/leak"
)

// BenchmarkFind10k searches 10 MB of configuration with 10,000 Secrets of keys and passwords.
func BenchmarkFind10k(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	var all []*corev1.Secret
	for i := range 10_000 {
		var key strings.Builder
		key.WriteString("-----BEGIN PRIVATE KEY-----\n")
		der := make([]byte, 26*48)
		for i := range der {
			der[i] = byte(r.Uint32())
		}
		for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(der)), 64) {
			fmt.Fprintf(&key, "%s\n", line)
		}
		s := secret(fmt.Sprintf("s-%05d", i), corev1.SecretTypeOpaque, map[string]string{"password": randomValue(r), "tls.key": key.String()})
		all = append(all, s)
	}
	var text strings.Builder
	for i := 0; text.Len() < 10<<20; i++ {
		fmt.Fprintf(&text, "backend shop_app-%05d_http from main\n    http-request set-header X-Forwarded-Prefix /app/%d\n    timeout server 30s\n    #hapsnap servers shop/app-%05d:http\n\n", i, i, i)
	}
	content := []byte(text.String())
	var memo leak.Memo
	b.Run("secrets", func(b *testing.B) {
		for b.Loop() {
			memo = leak.Memo{}
			memo.Index(all, leak.Public{})
		}
	})
	x := memo.Index(all, leak.Public{})
	b.Run("text", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for b.Loop() {
			if found := x.Find(content); len(found) > 0 {
				b.Fatal(found)
			}
		}
	})
}
