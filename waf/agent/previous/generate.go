//go:build ignore

// This program writes rules.zip, of a version of the module of the Core Rule Set. The go command verifies the module.
package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

func main() {
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/corazawaf/coraza-coreruleset/v4@v"+os.Args[1]).Output()
	if err != nil {
		log.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		log.Fatal(err)
	}
	rules := os.DirFS(filepath.Join(module.Dir, "rules"))
	var names []string
	if err := fs.WalkDir(rules, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	}); err != nil {
		log.Fatal(err)
	}
	slices.Sort(names)
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range names {
		text, err := fs.ReadFile(rules, name)
		if err != nil {
			log.Fatal(err)
		}
		// Without times, the same rules are the same archive.
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			log.Fatal(err)
		}
		if _, err := f.Write(text); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("rules.zip", archive.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
