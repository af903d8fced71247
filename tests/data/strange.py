"""Makes files of many strange kinds, each with the pixels it should give, or none."""

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import tifffile
from PIL import Image

WIDTH, HEIGHT = 48, 40


@dataclass(frozen=True)
class Strange:
    """The bytes of a file; the colour pixels it shows (None: unreadable); how far off they may
    be, on the mean, because of what the format loses; a part of the reason why it is unreadable.
    """

    data: bytes
    pixels: np.ndarray | None = None
    off: float = 0.0
    reason: str = ""


def scene(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Smooth colours, no two corners alike."""
    across = np.linspace(0, 1, width)[None, :, None]
    down = np.linspace(0, 1, height)[:, None, None]
    corners = np.array([[250, 40, 30], [20, 200, 60], [40, 60, 220], [240, 230, 90]], float)
    top = (1 - across) * corners[0] + across * corners[1]
    bottom = (1 - across) * corners[2] + across * corners[3]
    return np.asarray(np.rint((1 - down) * top + down * bottom).astype(np.uint8))


def grey(pixels: np.ndarray) -> np.ndarray:
    """The luma of colours, as three equal channels."""
    luma = np.rint(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    return np.repeat(luma[:, :, None], 3, axis=2)


def on_white(pixels: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    share = alpha[:, :, None] / 255
    return np.rint(pixels * share + 255 * (1 - share)).astype(np.uint8)


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """A picture as it is stored when its camera notes `orientation`: the way back from upright."""
    ways: dict[int, Callable[[np.ndarray], np.ndarray]] = {
        1: lambda p: p,
        2: np.fliplr,
        3: lambda p: np.rot90(p, 2),
        4: np.flipud,
        5: lambda p: p.transpose(1, 0, 2),
        6: lambda p: np.rot90(p, 1),
        7: lambda p: np.rot90(p, 2).transpose(1, 0, 2),
        8: lambda p: np.rot90(p, 3),
    }
    return np.ascontiguousarray(ways[orientation](pixels))


def saved(picture: Image.Image | np.ndarray, kind: str, **options: Any) -> bytes:
    """The file Pillow writes."""
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif(orientation: int) -> bytes:
    block = Image.Exif()
    block[0x0112] = orientation
    return block.tobytes()


def by_opencv(pixels: np.ndarray, ending: str, *options: int) -> bytes:
    """The file OpenCV writes, from red, green, blue."""
    order = [2, 1, 0, 3][: pixels.shape[2]]
    done, file = cv2.imencode(ending, np.ascontiguousarray(pixels[:, :, order]), options)
    assert done
    return bytes(file.tobytes())


def by_tifffile(values: np.ndarray, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, values, **options)
    return file.getvalue()


def png_chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is and holds nothing."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = png_chunk(b"IDAT", zlib.compress(b""))
    start = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", size)
    return start + pixels + png_chunk(b"IEND", b"")


def interlaced_png(pixels: np.ndarray) -> bytes:
    """Adam7: seven small pictures, one finer than the other."""
    height, width = pixels.shape[:2]
    coarse = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4))
    passes = (*coarse, (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    rows = b"".join(
        b"\0" + row.tobytes()
        for left, top, across, down in passes
        for row in pixels[top::down, left::across]
    )
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    start = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", size)
    return start + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


def deep_png(values: np.ndarray, colours: int, *before: bytes) -> bytes:
    """16 bits; `colours` is the number PNG has for the channels, `before` are further chunks."""
    height, width = values.shape[:2]
    size = struct.pack(">IIBBBBB", width, height, 16, colours, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    start = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", size) + b"".join(before)
    return start + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")


def with_late_exif(png: bytes, orientation: int) -> bytes:
    """A PNG whose EXIF lies behind its pixels."""
    end = png.rindex(b"IEND") - 4
    block = exif(orientation).removeprefix(b"Exif\0\0")
    return png[:end] + png_chunk(b"eXIf", block) + png[end:]


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


def detailed(width: int = 96, height: int = 160) -> np.ndarray:
    """A scene with noise, so that every row takes about as many bytes as the others."""
    noise = np.random.default_rng(0).integers(-20, 21, (height, width, 3))
    return (scene(width, height) + noise).clip(0, 255).astype(np.uint8)


def strange_files() -> dict[str, Strange]:
    """Every kind, by the name of its file."""
    return {**_jpegs(), **_pngs(), **_others(), **_tiffs(), **_broken(), **_names()}


def _jpegs() -> dict[str, Strange]:
    pixels = scene()
    fine = {"quality": 95, "subsampling": 0}
    jpeg = saved(pixels, "JPEG", **fine)
    cmyk = saved(Image.fromarray(pixels).convert("CMYK"), "JPEG", **fine)
    files = {
        "plain.jpg": Strange(jpeg, pixels, 2),
        "grey.jpg": Strange(saved(Image.fromarray(pixels).convert("L"), "JPEG"), grey(pixels), 2),
        "cmyk.jpg": Strange(cmyk, pixels, 3),
        "ycck.jpg": Strange(_ycck(pixels), pixels, 3),
        "progressive.jpg": Strange(saved(pixels, "JPEG", progressive=True, **fine), pixels, 2),
        "rgb.jpg": Strange(saved(pixels, "JPEG", keep_rgb=True, **fine), pixels, 2),
        "trailing junk.jpg": Strange(jpeg + b"\r\njunk behind the end", pixels, 2),
        "zeros behind.jpg": Strange(jpeg + bytes(512), pixels, 2),
        "corrupt exif.jpg": Strange(
            saved(pixels, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f\xff\xff", **fine), pixels, 2
        ),
        "nonsense orientation.jpg": Strange(
            saved(pixels, "JPEG", exif=exif(77), **fine), pixels, 2
        ),
    }
    for orientation in range(1, 9):
        stored = turned(pixels, orientation)
        data = saved(stored, "JPEG", exif=exif(orientation), **fine)
        files[f"orientation {orientation}.jpg"] = Strange(data, pixels, 2)
    return files


def _ycck(pixels: np.ndarray) -> bytes:
    """Four inks, three of them stored as luma and colour: Pillow reads such files but writes none.

    A file of inks (transform 0) is written with other planes and then called transform 2.
    """
    inks = np.asarray(Image.fromarray(pixels).convert("CMYK"))
    # Stored inks are inverted; what is luma and colour there is taken of their inverse again.
    luma = np.asarray(Image.fromarray(np.ascontiguousarray(inks[:, :, :3])).convert("YCbCr"))
    planes = np.concatenate([255 - luma, inks[:, :, 3:]], axis=2)
    data = bytearray(saved(Image.fromarray(planes, "CMYK"), "JPEG", quality=95, subsampling=0))
    data[data.index(b"Adobe") + 11] = 2
    return bytes(data)


def _pngs() -> dict[str, Strange]:
    pixels = scene()
    colour = Image.fromarray(pixels)
    alpha = np.linspace(0, 255, WIDTH * HEIGHT).reshape(HEIGHT, WIDTH).astype(np.uint8)
    see_through = Image.fromarray(np.dstack([pixels, alpha]))
    palette = colour.quantize(64)
    shown = np.asarray(palette.convert("RGB"))
    first = np.asarray(palette)[0, 0]
    hole = np.where(np.asarray(palette) == first, 0, 255).astype(np.uint8)
    bits = np.asarray(colour.convert("1")).astype(np.uint8) * 255
    deep = pixels.astype(np.uint16) * 257
    twelve = (pixels[:, :, 0].astype(np.uint32) * 4095 // 255).astype(np.uint16)
    twelve[0, 0] = 4095
    bright = np.rint(twelve / 4095 * 255).astype(np.uint8)
    png = saved(colour, "PNG")
    luma = grey(pixels)
    return {
        "plain.png": Strange(png, pixels),
        "named wrongly.jpg": Strange(png, pixels),
        "interlaced.png": Strange(interlaced_png(pixels), pixels),
        "palette.png": Strange(saved(palette, "PNG"), shown),
        "palette with hole.png": Strange(
            saved(palette, "PNG", transparency=int(first)), on_white(shown, hole)
        ),
        "alpha.png": Strange(saved(see_through, "PNG"), on_white(pixels, alpha), 0.5),
        "grey alpha.png": Strange(
            saved(see_through.convert("LA"), "PNG"), on_white(luma, alpha), 1
        ),
        "one bit.png": Strange(
            saved(colour.convert("1"), "PNG"), np.repeat(bits[:, :, None], 3, 2)
        ),
        "16 bit grey.png": Strange(saved(deep[:, :, 0], "PNG"), pixels[:, :, [0, 0, 0]]),
        "12 bit grey.png": Strange(saved(twelve, "PNG"), np.repeat(bright[:, :, None], 3, 2)),
        "16 bit colour.png": Strange(by_opencv(deep, ".png"), pixels),
        "16 bit alpha.png": Strange(
            by_opencv(np.dstack([deep, alpha.astype(np.uint16) * 257]), ".png"),
            on_white(pixels, alpha),
            0.5,
        ),
        "16 bit grey alpha.png": Strange(
            deep_png(np.dstack([deep[:, :, 0], alpha.astype(np.uint16) * 257]), 4),
            on_white(pixels[:, :, [0, 0, 0]], alpha),
            0.5,
        ),
        "16 bit with hole.png": Strange(
            deep_png(deep, 2, png_chunk(b"tRNS", deep[0, 0].astype(">u2").tobytes())),
            on_white(pixels, np.where((deep == deep[0, 0]).all(axis=2), 0, 255)),
        ),
        "16 bit, junk behind.png": Strange(by_opencv(deep, ".png") + b"junk", pixels),
        "turned.png": Strange(saved(turned(pixels, 6), "PNG", exif=exif(6)), pixels),
        "16 bit colour, turned.png": Strange(
            with_late_exif(by_opencv(turned(deep, 6), ".png"), 6), pixels
        ),
        "turned at the end.png": Strange(
            with_late_exif(saved(turned(pixels, 8), "PNG"), 8), pixels
        ),
        "one pixel.png": Strange(saved(pixels[:1, :1], "PNG"), pixels[:1, :1]),
        "wide.png": Strange(saved(scene(20000, 2), "PNG"), scene(20000, 2)),
        "tall.png": Strange(saved(scene(1, 9000), "PNG"), scene(1, 9000)),
    }


def _others() -> dict[str, Strange]:
    pixels = scene()
    colour = Image.fromarray(pixels)
    alpha = np.full((HEIGHT, WIDTH), 51, np.uint8)
    see_through = Image.fromarray(np.dstack([pixels, alpha]))
    palette = colour.quantize(64)
    negative = Image.fromarray(255 - pixels)
    frames: dict[str, Any] = {"save_all": True, "append_images": [negative, colour]}
    sixteen = pixels.astype(">u2")[:, :, 0] * 257
    return {
        "plain.webp": Strange(saved(colour, "WEBP", lossless=True), pixels),
        "alpha.webp": Strange(
            saved(see_through, "WEBP", lossless=True, exact=True), on_white(pixels, alpha), 0.5
        ),
        "animated.webp": Strange(saved(colour, "WEBP", lossless=True, **frames), pixels),
        "turned.webp": Strange(
            saved(turned(pixels, 5), "WEBP", lossless=True, exif=exif(5)), pixels
        ),
        "plain.bmp": Strange(saved(colour, "BMP"), pixels),
        "palette.bmp": Strange(saved(palette, "BMP"), np.asarray(palette.convert("RGB"))),
        "plain.gif": Strange(saved(palette, "GIF"), np.asarray(palette.convert("RGB"))),
        "animated.gif": Strange(
            saved(palette, "GIF", save_all=True, append_images=[negative.quantize(8)]),
            np.asarray(palette.convert("RGB")),
        ),
        "ppm named.png": Strange(saved(colour, "PPM"), pixels),
        "pgm named.png": Strange(saved(colour.convert("L"), "PPM"), grey(pixels), 0.5),
        "deep pgm named.png": Strange(
            b"P5 %d %d 65535\n" % (WIDTH, HEIGHT) + sixteen.tobytes(), pixels[:, :, [0, 0, 0]]
        ),
    }


def _tiffs() -> dict[str, Strange]:
    pixels = scene()
    colour = Image.fromarray(pixels)
    negative = Image.fromarray(255 - pixels)
    red = pixels[:, :, 0]
    red_only = pixels[:, :, [0, 0, 0]]
    deep = pixels.astype(np.uint16) * 257
    alpha = np.full((HEIGHT, WIDTH, 1), 51 * 257, np.uint16)
    many = np.concatenate([pixels, 255 - pixels[:, :, :2]], axis=2)
    rgb: dict[str, Any] = {"photometric": "rgb"}
    return {
        "plain.tif": Strange(saved(colour, "TIFF"), pixels),
        "lzw.tif": Strange(saved(colour, "TIFF", compression="tiff_lzw"), pixels),
        "cmyk.tif": Strange(saved(colour.convert("CMYK"), "TIFF"), pixels, 1),
        "pages.tif": Strange(
            saved(colour, "TIFF", save_all=True, append_images=[negative]), pixels
        ),
        "turned.tif": Strange(saved(turned(pixels, 6), "TIFF", tiffinfo={274: 6}), pixels),
        "16 bit grey.tif": Strange(saved(deep[:, :, 0], "TIFF"), red_only),
        "16 bit grey, big end.tif": Strange(by_tifffile(deep[:, :, 0], byteorder=">"), red_only),
        "16 bit colour.tif": Strange(by_opencv(deep, ".tif"), pixels),
        "16 bit colour, lzw.tif": Strange(
            by_opencv(deep, ".tif", cv2.IMWRITE_TIFF_COMPRESSION, 5), pixels
        ),
        "16 bit colour, apart.tif": Strange(
            by_tifffile(np.moveaxis(deep, 2, 0), planarconfig="separate", **rgb), pixels
        ),
        "16 bit colour, upside down.tif": Strange(
            by_tifffile(turned(deep, 3), **rgb, **_noted(3)), pixels
        ),
        "16 bit alpha.tif": Strange(
            by_tifffile(np.concatenate([deep, alpha], 2), extrasamples=["unassalpha"], **rgb),
            on_white(pixels, np.full((HEIGHT, WIDTH), 51)),
            0.5,
        ),
        "tiled.tif": Strange(by_tifffile(pixels, tile=(16, 16), **rgb), pixels),
        "tiled 16 bit.tif": Strange(by_tifffile(deep, tile=(16, 16), **rgb), pixels),
        "float.tif": Strange(by_tifffile(red.astype(np.float32) / 255), red_only),
        "float colour.tif": Strange(by_tifffile(pixels.astype(np.float32) / 255, **rgb), pixels),
        "float beyond one.tif": Strange(
            by_tifffile(red.astype(np.float32) * 10 - 700), _stretched(red)
        ),
        "32 bit.tif": Strange(by_tifffile(red.astype(np.int32) * 1000), _stretched(red)),
        "5 channels, turned.tif": Strange(
            by_tifffile(turned(many, 6), planarconfig="contig", **rgb, **_noted(6)), pixels
        ),
        "5 channels.tif": Strange(by_tifffile(many, planarconfig="contig", **rgb), pixels),
        "5 channels, apart.tif": Strange(
            by_tifffile(np.moveaxis(many, 2, 0), planarconfig="separate", **rgb), pixels
        ),
        "5 channels of 16 bit.tif": Strange(
            by_tifffile(many.astype(np.uint16) * 257, planarconfig="contig", **rgb), pixels
        ),
        "not a number.tif": Strange(
            by_tifffile(np.full((8, 8), np.nan, np.float32)), reason="not a number"
        ),
        "2 channels.tif": Strange(
            by_tifffile(many[:, :, :2], planarconfig="contig", photometric="minisblack"),
            reason="has 2 channels, 3 are wanted",
        ),
    }


def _noted(orientation: int) -> dict[str, Any]:
    return {"extratags": [(274, "H", 1, orientation, True)]}


def _stretched(values: np.ndarray) -> np.ndarray:
    least, greatest = int(values.min()), int(values.max())
    bytes_ = np.rint((values.astype(float) - least) / (greatest - least) * 255).astype(np.uint8)
    return np.repeat(bytes_[:, :, None], 3, axis=2)


def _broken() -> dict[str, Strange]:
    pixels = scene()
    rows = detailed()
    jpeg = saved(rows, "JPEG", quality=95)
    png = saved(rows, "PNG")
    tiff = saved(pixels, "TIFF", compression="tiff_lzw")
    middle = bytearray(jpeg)
    middle[len(jpeg) // 2 : len(jpeg) // 2 + 60] = bytes(60)
    wrong_sum = bytearray(png)
    wrong_sum[29] ^= 0xFF
    no_size = bytearray(jpeg)
    place = no_size.index(b"\xff\xc0") + 5
    no_size[place : place + 4] = bytes(4)
    webp = saved(rows, "WEBP", lossless=True)
    deep = by_opencv(rows.astype(np.uint16) * 257, ".png")
    greedy = bytearray(deep)
    place = greedy.index(b"IDAT") - 4
    greedy[place : place + 4] = b"\x7f\xff\xff\xff"
    return {
        "cut a little.jpg": Strange(cut(jpeg, 0.97), rows, 12),
        "cut a little.png": Strange(cut(png, 0.97), rows, 8),
        "damaged in the middle.jpg": Strange(bytes(middle), rows, 80),
        "cut in half.jpg": Strange(cut(jpeg, 0.5), reason="per cent of the picture is missing"),
        "cut in half.png": Strange(cut(png, 0.5), reason="per cent of the picture is missing"),
        "cut in half, 16 bit.png": Strange(cut(deep, 0.5), reason="ends too early"),
        "part of two gigabytes.png": Strange(bytes(greedy), reason="ends too early"),
        "cut in half.webp": Strange(cut(webp, 0.5)),
        "cut in half.gif": Strange(cut(saved(Image.fromarray(rows).quantize(), "GIF"), 0.5)),
        "cut in half.bmp": Strange(cut(saved(rows, "BMP"), 0.5)),
        "cut in half.tif": Strange(cut(tiff, 0.5)),
        "cut in its header.jpg": Strange(jpeg[:100]),
        "first bytes only.png": Strange(png[:8]),
        "empty.jpg": Strange(b"", reason="empty"),
        "zeros.png": Strange(bytes(4096), reason="not a picture in a known format"),
        "noise.tif": Strange(
            np.random.default_rng(1).bytes(4096), reason="not a picture in a known format"
        ),
        "text.jpg": Strange(b"not a picture", reason="not a picture in a known format"),
        "page.png": Strange(
            b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
            reason="not a picture in a known format",
        ),
        "drawing.jpg": Strange(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        "bomb.png": Strange(
            png_header(60000, 60000),
            reason="60000 x 60000 pixels are more than data.max_megapixels",
        ),
        "bomb.tif": Strange(_tiff_bomb(), reason="more than data.max_megapixels"),
        "without pixels.png": Strange(png_header(0, 10)),
        "without pixels.jpg": Strange(bytes(no_size)),
        "wrong checksum.png": Strange(bytes(wrong_sum)),
        "tags in a circle.tif": Strange(b"II*\0\x08\0\0\0" + b"\xff\xff" + b"\x01" * 60),
    }


def _tiff_bomb() -> bytes:
    """A TIFF of 16 bits and three channels that says it is far larger than it is."""
    data = bytearray(by_tifffile(scene().astype(np.uint16), photometric="rgb"))
    with tifffile.TiffFile(io.BytesIO(bytes(data))) as file:
        tags = file.pages.first.tags
        places = [tags[name].valueoffset for name in ("ImageWidth", "ImageLength")]
        kinds = [tags[name].dtype for name in ("ImageWidth", "ImageLength")]
    for place, kind in zip(places, kinds, strict=True):
        struct.pack_into("<H" if kind == 3 else "<I", data, place, 60000)
    return bytes(data)


def _names() -> dict[str, Strange]:
    pixels = scene()
    png = saved(pixels, "PNG")
    readable = (
        "with  spaces .png",
        "with 'quotes\".png",
        "日本語 ñ é.png",
        "#100%&;$HOME.png",
        "-r.png",
        "UPPER.PNG",
        "a.b.c.png",
        "line\nbreak.png",
        "x" * 200 + ".png",
    )
    files = {name: Strange(png, pixels) for name in readable}
    files["tab\tand\nbreak.png"] = Strange(b"not a picture", reason="not a picture")
    return files
