package snapshots

import (
	"strings"
	"testing"
)

func TestLargest(t *testing.T) {
	t.Parallel()
	var files []File
	for _, name := range strings.Split("a b c d e f g h i j k l", " ") {
		files = append(files, File{Path: name, Content: []byte("x")})
	}
	files[11].Content = []byte("xx")
	if got := Largest(files); got != "l 2, a 1, b 1, c 1, d 1, e 1, f 1, g 1, h 1, i 1" {
		t.Error(got)
	}
}
