package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/hapsnap/hapsnap/internal/process"
)

func manCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write a man page for each verb",
		Long: `Write man pages of section 1 into a directory, which the command makes if it is missing.
The pages of the same version are always the same bytes.`,
		Example: "  " + name + " man ~/.local/share/man/man1",
		Args:    process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everybody reads man pages
				return fmt.Errorf("make the directory of the man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			date := time.Unix(0, 0).UTC()
			header := &doc.GenManHeader{Section: "1", Source: Name + " " + process.Version(), Manual: "hapsnap", Date: &date}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			return nil
		},
	}
}
