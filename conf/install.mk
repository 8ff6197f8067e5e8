# SPDX-License-Identifier: Apache-2.0
# make install and make uninstall, with the same DESTDIR=, PREFIX= and SYSCONFDIR=; and the wheel. Read by the Makefile.
#
#   make install   DESTDIR= PREFIX=/usr/local; make uninstall takes all of it away again, and nothing else
#   make wheel     the Python package with libdiloco inside, build/wheel/

INSTALL := install
DESTBIN := $(DESTDIR)$(PREFIX)/bin
DESTLIB := $(DESTDIR)$(PREFIX)/lib
DESTMAN := $(DESTDIR)$(PREFIX)/share/man
DESTDOC := $(DESTDIR)$(PREFIX)/share/doc/diloco
# Where shells look for what completes a program's words.
DESTBASH := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
DESTZSH := $(DESTDIR)$(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
DESTFISH := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

install: all
	$(INSTALL) -d $(DESTBIN) $(DESTLIB)/pkgconfig $(DESTDIR)$(PREFIX)/include $(DESTMAN)/man1 $(DESTMAN)/man3 $(DESTMAN)/man5 $(DESTMAN)/man8 \
		$(DESTDOC) $(DESTBASH) $(DESTZSH) $(DESTFISH) $(DESTDIR)$(PREFIX)/share/diloco $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/diloco
	[ -d $(DESTDIR)$(SYSCONFDIR)/diloco/key ] || $(INSTALL) -d -m 700 $(DESTDIR)$(SYSCONFDIR)/diloco/key
	$(INSTALL) -m 755 $(PROGRAMS) $(DESTBIN)
	$(INSTALL) -m 644 $(B)/libdiloco.a $(DESTLIB)
	$(INSTALL) -m 755 $(B)/libdiloco.so.0 $(DESTLIB)
	$(if $(CUDA_LIBRARY),$(INSTALL) -d $(DESTLIB)/diloco && $(INSTALL) -m 755 $(CUDA_LIBRARY) $(DESTLIB)/diloco)
	ln -sf libdiloco.so.0 $(DESTLIB)/libdiloco.so
	$(INSTALL) -m 644 worker/libdiloco/diloco.h $(DESTDIR)$(PREFIX)/include
	sed 's,@PREFIX@,$(PREFIX),; s,@VERSION@,$(VERSION),' conf/diloco.pc.in > $(DESTLIB)/pkgconfig/diloco.pc
	for page in diloco-worker.1 dilococtl.1 libdiloco.3 dilocod.8 diloco-gateway.8; do \
		sed '1s/@VERSION@/$(VERSION)/' docs/$$page > $(DESTMAN)/man$${page##*.}/$$page || exit 1; done
	sh conf/man5.sh $(VERSION) dilocod.conf "settings of one island" "Read by dilocod(8) when it starts, and by dilococtl(1) to find it." < conf/dilocod.conf > $(DESTMAN)/man5/dilocod.conf.5
	sh conf/man5.sh $(VERSION) run.ini "the run spec, the one document that defines a run" "Read by dilocod(8) and diloco-worker(1); the same on every island of a run." < conf/run.ini > $(DESTMAN)/man5/run.ini.5
	for program in dilococtl diloco-worker; do \
		$(B)/$$program completion bash > $(DESTBASH)/$$program && $(B)/$$program completion zsh > $(DESTZSH)/_$$program && \
		$(B)/$$program completion fish > $(DESTFISH)/$$program.fish && \
		chmod 644 $(DESTBASH)/$$program $(DESTZSH)/_$$program $(DESTFISH)/$$program.fish || exit 1; done
	$(INSTALL) -m 644 README.md docs/*.md docs/*.svg docs/example-trainer.c docs/example-ranks.c $(DESTDOC)
	$(INSTALL) -m 644 CHANGELOG.md $(DESTDOC) && conf/licence.sh $(DESTDOC)
	$(INSTALL) -d $(DESTDOC)/examples && $(INSTALL) -m 644 docs/examples/*.py docs/examples/*.yaml $(DESTDOC)/examples
	$(INSTALL) -m 755 docs/examples/*.sh docs/examples/*.sbatch $(DESTDOC)/examples
	$(INSTALL) -d $(DESTDOC)/tutorials && $(INSTALL) -m 644 docs/tutorials/*.md $(DESTDOC)/tutorials
	sed 's,/usr/local/bin,$(PREFIX)/bin,' conf/dilocod.service > $(DESTDIR)$(UNITDIR)/dilocod.service
	sed 's,/usr/local/share,$(PREFIX)/share,' conf/dilocod-gpu.conf > $(DESTDIR)$(PREFIX)/share/diloco/dilocod-gpu.conf
	$(INSTALL) -m 644 conf/dilocod.conf $(DESTDIR)$(SYSCONFDIR)/diloco/dilocod.conf.sample
	$(INSTALL) -m 644 conf/run.ini $(DESTDIR)$(SYSCONFDIR)/diloco/run.ini.sample
	$(INSTALL) -m 644 conf/thin.ini $(DESTDIR)$(SYSCONFDIR)/diloco/thin.ini.sample
	@if [ -z "$(DESTDIR)" ] && command -v ldconfig >/dev/null 2>&1; then ldconfig || echo "run ldconfig as root, so that programs find libdiloco.so.0"; fi

# What install lays down, file by file, and folders that are of diloco alone; what somebody has put beside it stays, as
# settings in /etc/diloco do, and islands.
uninstall:
	rm -f $(addprefix $(DESTBIN)/,$(notdir $(PROGRAMS))) $(addprefix $(DESTLIB)/,libdiloco.a libdiloco.so.0 libdiloco.so pkgconfig/diloco.pc diloco/libdiloco-cuda.so) \
		$(DESTDIR)$(PREFIX)/include/diloco.h $(DESTMAN)/man1/diloco-worker.1 $(DESTMAN)/man1/dilococtl.1 $(DESTMAN)/man3/libdiloco.3 \
		$(DESTMAN)/man5/dilocod.conf.5 $(DESTMAN)/man5/run.ini.5 $(DESTMAN)/man8/dilocod.8 $(DESTMAN)/man8/diloco-gateway.8 \
		$(foreach program,dilococtl diloco-worker,$(DESTBASH)/$(program) $(DESTZSH)/_$(program) $(DESTFISH)/$(program).fish) \
		$(DESTDIR)$(UNITDIR)/dilocod.service $(DESTDIR)$(PREFIX)/share/diloco/dilocod-gpu.conf \
		$(addprefix $(DESTDIR)$(SYSCONFDIR)/diloco/,dilocod.conf.sample run.ini.sample thin.ini.sample)
	rm -rf $(DESTDOC)
	@for folder in $(DESTLIB)/diloco $(DESTDIR)$(PREFIX)/share/diloco $(DESTDIR)$(SYSCONFDIR)/diloco/key $(DESTDIR)$(SYSCONFDIR)/diloco; do \
		rmdir "$$folder" 2>/dev/null || [ ! -d "$$folder" ] || echo "$$folder stays: what is in it is not of make install"; done

# A wheel that carries libdiloco.so.0, for machines like this one: build/wheel/diloco-*.whl.
wheel: $(B)/libdiloco.so.0
	@conf/wheel.sh $(B)/libdiloco.so.0 $(firstword $(subst -, ,$(MACHINE))) build/wheel
